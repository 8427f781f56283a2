"""What cannot be stored must not run: full disks and folders that cannot be written, on the real Claude Code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Hold, Script, Step, Text, ToolUse
from support_claude import AgentProcess, agent_process
from support_wire import Wire, WireError

pytestmark = pytest.mark.real


def allow(wire: Wire) -> None:
    wire.handle("session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}})


@pytest.fixture
def side_effect(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def script(side_effect: Path) -> Script:
    work = ToolUse("Bash", {"command": f"echo ran >> {side_effect}", "description": "Run it"})
    return Script([Step("Work", [[Text("Soon"), Hold("model"), work], [Text("Done.")]])])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The config folder on a file system of one megabyte."""
    folder = tmp_path / "config"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting is not allowed")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return filler


async def refused_as_not_stored(agent: AgentProcess, session_id: str, work: str, why: str) -> None:
    with pytest.raises(WireError) as refused:
        await agent.wire.prompt(session_id, work, key="work")
    assert refused.value.code == -32603
    assert refused.value.data == {"reason": "not_stored"}
    assert why in refused.value.message


async def runs_once(agent: AgentProcess, session_id: str, work: str) -> None:
    """The same prompt is sent again, twice, now that it can be stored."""
    ended = agent.wire.states(session_id).count("idle:end_turn")
    message_id = await agent.wire.prompt(session_id, work, key="work")
    await agent.wire.until(lambda: agent.wire.states(session_id).count("idle:end_turn") > ended)
    assert await agent.wire.prompt(session_id, work, key="work") == message_id


class TestFullDisk:
    @pytest.fixture
    def env(self, small_disk: Path, env: dict[str, str]) -> dict[str, str]:
        return env

    @pytest.mark.parametrize("found_out", ["before it is sent", "by the missing row"])
    async def test_a_prompt_that_cannot_be_stored_does_not_run(
        self,
        env: dict[str, str],
        cwd: str,
        small_disk: Path,
        service: MessagesService,
        side_effect: Path,
        found_out: str,
    ) -> None:
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            allow(agent.wire)
            session_id = await agent.wire.new(cwd)
            await agent.wire.prompt(session_id, "First.", key="first")
            await agent.wire.idle(session_id)
            filler = fill(small_disk)
            work = "Work " + "x" * 20_000  # more than the slack of the transcript's last page
            if found_out == "by the missing row":
                # Something is left, but too little for the row.
                os.truncate(filler, filler.stat().st_size - 4096)
            await refused_as_not_stored(agent, session_id, work, "ENOSPC")
            service.release("model")
            filler.unlink()
            await runs_once(agent, session_id, work)
            await agent.close()
        assert side_effect.read_text().splitlines() == ["ran"]


class TestNoFolder:
    async def test_a_prompt_does_not_run_where_no_folder_can_be_made(
        self, env: dict[str, str], cwd: str, service: MessagesService, side_effect: Path, tmp_path: Path
    ) -> None:
        projects = tmp_path / "config" / "projects"
        projects.write_text("A file.")
        async with agent_process(env) as agent:
            await agent.wire.initialize()
            allow(agent.wire)
            session_id = await agent.wire.new(cwd)
            await refused_as_not_stored(agent, session_id, "Work", "ENOTDIR")
            assert service.count("Work") == 0
            service.release("model")
            projects.unlink()
            await runs_once(agent, session_id, "Work")
            await agent.close()
        assert side_effect.read_text().splitlines() == ["ran"]
