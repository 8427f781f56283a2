"""Our agent in front of the real Codex, over real pipes, with the stand-in model service."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sayagain.runtime.events import Foreground, Inserted, Rejected, RuntimeEvent
from sayagain.testing.codex_config import stand_in_config
from sayagain.testing.responses_api import ResponsesService
from sayagain_codex.damage import DamagedRow
from support_process import AgentProcess, own_code, start_agent

__all__ = [
    "AgentProcess",
    "AllListed",
    "agent_process",
    "codex_environment",
    "codex_folder",
    "codex_pids",
    "idle",
    "outcome",
    "raw_codex",
    "rollout",
    "rows",
    "stored_ids",
    "trust_hook",
    "user_messages",
]

REPOSITORY = Path(__file__).parent.parent


class AllListed:
    """What a history asks of who has the files, where nothing is wrong with them."""

    async def damaged(self, thread: Mapping[str, Any]) -> Sequence[DamagedRow]:
        return ()

    async def check_files(self, thread_id: str) -> None: ...

    async def is_listed(self, thread: Mapping[str, Any]) -> bool:
        return True

    async def check_listed(self, thread: Mapping[str, Any]) -> None: ...


@contextmanager
def codex_folder() -> Iterator[Path]:
    """A fresh folder outside the system's temporary one, where Codex refuses to put its helpers."""
    folder = REPOSITORY / ".codex-test" / uuid4().hex
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def codex_environment(
    folder: Path, service: ResponsesService | None, *, auth: bool = False, more: str = "", **extra: str
) -> dict[str, str]:
    """An environment in which nothing leaves the machine and nothing of the user's is read."""
    for name in ("home", "codex", "project", "other"):
        (folder / name).mkdir(exist_ok=True)
    url = service.url if service is not None else "http://127.0.0.1:9"
    config = stand_in_config(url, auth=auth, more=more)
    (folder / "codex" / "config.toml").write_text(config, encoding="utf-8")
    env = {
        **own_code(),
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "CODEX_HOME": str(folder / "codex"),
        "CODEX_PATH": bundled(),
    }
    return env | extra


@contextmanager
def raw_codex(env: Mapping[str, str]) -> Iterator[Callable[[str, Mapping[str, Any]], Any]]:
    """The app-server without our agent: a function that sends a request and gives its result."""
    with subprocess.Popen(
        [env["CODEX_PATH"], "app-server"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        count = itertools.count(1)

        def request(method: str, params: Mapping[str, Any]) -> Any:
            number = next(count)
            stdin.write(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
            stdin.flush()
            answer = next(m for line in stdout if "method" not in (m := json.loads(line)) and m["id"] == number)
            assert "error" not in answer, answer
            return answer["result"]

        info = {"name": "test", "version": "1"}
        request("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
        yield request
        stdin.close()


def trust_hook(env: Mapping[str, str], event: str, command: str) -> None:
    """Configure a hook, as a user does who has looked at it: Codex runs none whose hash is not trusted."""
    hooks = {"hooks": {event: [{"hooks": [{"type": "command", "command": command}]}]}}
    home = Path(env["CODEX_HOME"])
    (home / "hooks.json").write_text(json.dumps(hooks), encoding="utf-8")
    with raw_codex(env) as request:
        (hook,) = request("hooks/list", {"cwds": [env["HOME"]]})["data"][0]["hooks"]
    with (home / "config.toml").open("a", encoding="utf-8") as config:
        config.write(f'[hooks.state."{hook["key"]}"]\ntrusted_hash = "{hook["currentHash"]}"\n')


def bundled() -> str:
    """The binary that these tests are about, whatever is installed beside it."""
    codex_cli_bin = pytest.importorskip("codex_cli_bin")
    return str(codex_cli_bin.bundled_codex_path())


def agent_process(env: Mapping[str, str], *arguments: str) -> AbstractAsyncContextManager[AgentProcess]:
    """Start ``sayagain codex``; it is killed at the end if it still runs."""
    return start_agent("codex", env, *arguments)


def rollout(env: Mapping[str, str], session_id: str) -> Path:
    """The session's raw file: the newest, since a revert writes another one."""
    paths = Path(env["CODEX_HOME"]).glob(f"sessions/**/rollout-*-{session_id}*.jsonl")
    return max(paths, key=lambda path: path.stat().st_mtime_ns)


def rows(env: Mapping[str, str], session_id: str) -> list[dict[str, Any]]:
    """What is stored of the session. A file that a revert wrote goes on from a place in the ones before it: it names
    the first one by the session, a later one by its revision."""
    paths = sorted(Path(env["CODEX_HOME"]).glob(f"sessions/**/rollout-*-{session_id}*.jsonl"), key=_revision)
    found: list[dict[str, Any]] = []
    names = {session_id}
    for path in paths:
        own = list(_whole_rows(path))
        base = own[0]["payload"].get("history_base") if own and own[0]["type"] == "session_meta" else None
        end = base["end_ordinal_exclusive"] if base is not None and base["thread_id"] in names else None
        names.add(_revision(path))
        found = [row for row in found if end is not None and row["ordinal"] < end] + own
    return found


def _revision(path: Path) -> str:
    """Revisions are UUIDv7: later ones are greater, and the first file has none."""
    return path.stem.partition("_")[2]


def _whole_rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # a kill cut the last line


def user_messages(env: Mapping[str, str], session_id: str) -> list[dict[str, Any]]:
    """The rows that store user messages, repeats included."""
    items = [row for row in rows(env, session_id) if row["type"] == "event_msg" and "item" in row["payload"]]
    return [row for row in items if row["payload"]["item"]["type"] == "UserMessage"]


def stored_ids(env: Mapping[str, str], session_id: str) -> list[str]:
    """The ids of stored user messages, read by the tests' own eyes, repeats included."""
    return [row["payload"]["item"]["client_id"] for row in user_messages(env, session_id)]


def codex_pids(env: Mapping[str, str]) -> list[int]:
    """The app-servers that run on this folder."""
    wanted = f"CODEX_HOME={env['CODEX_HOME']}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if wanted in (entry / "environ").read_bytes().split(b"\0") and b"app-server" in command[1:2]:
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


async def outcome(events: AsyncIterator[RuntimeEvent]) -> Inserted | Rejected:
    """Wait until it is known what became of the message that was submitted."""
    while not isinstance(event := await anext(events), Inserted | Rejected):
        pass
    return event


async def idle(events: AsyncIterator[RuntimeEvent]) -> None:
    """Wait until the work has ended."""
    while not (isinstance(event := await anext(events), Foreground) and event.state == "idle" and event.stop_reason):
        pass
