"""Listing, forking, closing, deleting and resuming in front of the real Claude Code; damaged and unreadable files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sayagain.testing.messages_api import MessagesService
from sayagain.testing.messages_script import Script, Step, Text, ToolUse
from support_claude import AgentProcess, agent_process, rows, stored_ids, transcript
from support_wire import WireError, entities

pytestmark = pytest.mark.real


async def resume_and_prompt(agent: AgentProcess, session_id: str, cwd: str) -> None:
    await agent.wire.resume(session_id, cwd)
    await agent.wire.prompt(session_id, "Hello", key="k")


def listed(result: Any) -> list[str]:
    return [row["sessionId"] for row in result["sessions"]]


async def test_the_list_has_what_was_prompted_and_nothing_else(agent: AgentProcess, cwd: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    unprompted = await agent.wire.new(cwd)
    first, second = await agent.wire.new(cwd), await agent.wire.new(str(other))
    for session_id, words in ((first, "First things first"), (second, "Then the rest")):
        await agent.wire.prompt(session_id, words)
        await agent.wire.idle(session_id)
    everything = await agent.wire.request("session/list", {})
    assert set(listed(everything)) == {first, second}
    assert unprompted not in listed(everything)
    (row,) = (await agent.wire.request("session/list", {"cwd": cwd}))["sessions"]
    assert (row["sessionId"], row["cwd"], row["title"]) == (first, cwd, "First things first")
    assert listed(await agent.wire.request("session/list", {"cwd": str(tmp_path)})) == []
    with pytest.raises(WireError) as caught:
        await agent.wire.request("session/list", {"cursor": "made up"})
    assert (caught.value.code, caught.value.data["field"]) == (-32602, "cursor")


async def test_a_fork_is_a_session_of_its_own_with_all_that_was_said(
    agent: AgentProcess, service: MessagesService, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    original = await agent.wire.prompt(session_id, "Said before the fork", key="k")
    await agent.wire.idle(session_id)
    fork = (await agent.wire.request("session/fork", {"sessionId": session_id, "cwd": cwd}))["sessionId"]
    assert fork != session_id
    # It is stored at once, so it survives a crash unprompted.
    await agent.kill()
    async with agent_process(env) as second:
        await second.wire.initialize()
        await second.wire.resume(fork, cwd, replay=True)
        assert list(entities(second.wire.updates(fork)).values()) == ["Said before the fork", "Done."]
        # The same key in a fork names an unrelated submission (KEY-8).
        new = await second.wire.prompt(fork, "Said before the fork", key="k")
        assert new != original
        await second.wire.idle(fork, 2)
    assert stored_ids(env, session_id) == [original]
    assert stored_ids(env, fork) == [original, new]


async def test_close_delete_and_what_is_left(agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "Hello", key="k")
    await agent.wire.idle(session_id)
    for _ in range(2):
        assert await agent.wire.request("session/close", {"sessionId": session_id}) == {}
    with pytest.raises(WireError) as caught:
        await agent.wire.prompt(session_id, "Hello", key="k")
    assert caught.value.code == -32002
    await agent.wire.resume(session_id, cwd)
    for _ in range(2):
        assert await agent.wire.request("session/delete", {"sessionId": session_id}) == {}
    assert listed(await agent.wire.request("session/list", {})) == []
    with pytest.raises(WireError) as caught:
        await agent.wire.resume(session_id, cwd, replay=True)
    assert caught.value.code == -32002
    assert not list(Path(env["CLAUDE_CONFIG_DIR"]).glob(f"projects/*/{session_id}*"))


@pytest.mark.parametrize("session_id", ["../../etc/passwd", "\0", "x" * 10_000, "", "not-a-uuid"])
async def test_session_ids_that_clients_make_up(agent: AgentProcess, cwd: str, session_id: str) -> None:
    with pytest.raises(WireError) as caught:
        await agent.wire.resume(session_id, cwd, replay=True)
    assert caught.value.code in (-32002, -32602)
    await agent.wire.request("session/delete", {"sessionId": session_id or "x"})
    assert await agent.wire.new(cwd)


async def test_a_title_that_the_client_sets_stays(agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
    session_id = await agent.wire.new(cwd)
    with pytest.raises(WireError) as caught:
        await agent.wire.request("session/set_title", {"sessionId": session_id, "title": "Not stored yet"})
    assert caught.value.code == -32002
    await agent.wire.prompt(session_id, "Hello")
    await agent.wire.idle(session_id)
    answer = await agent.wire.request("session/set_title", {"sessionId": session_id, "title": " A   better\nname "})
    assert answer == {"title": "A better name"}
    assert agent.wire.updates(session_id, "session_info_update")[-1]["title"] == "A better name"
    await agent.wire.prompt(session_id, "More")
    await agent.wire.idle(session_id, 2)
    await agent.close()
    async with agent_process(env) as second:
        await second.wire.initialize()
        (row,) = (await second.wire.request("session/list", {}))["sessions"]
        assert row["title"] == "A better name"
        assert await second.wire.request("session/status", {"sessionId": session_id}) == {"status": "saved"}
        await second.wire.resume(session_id, cwd, replay=True)
        assert second.wire.updates(session_id, "session_info_update")[-1]["title"] == "A better name"
        status = await second.wire.request("session/status", {"sessionId": session_id})
        assert (status["status"], status["state"]["state"]) == ("open", "idle")


async def test_a_deleted_session_is_gone_from_every_folder(agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
    session_id = await agent.wire.new(cwd)
    await agent.wire.prompt(session_id, "Hello")
    await agent.wire.idle(session_id)
    folder = transcript(env, session_id).parent
    for number in range(2):
        shutil.copytree(folder, folder.with_name(f"{folder.name}-{number}"))
    await agent.wire.request("session/delete", {"sessionId": session_id})
    assert (await agent.wire.request("session/list", {}))["sessions"] == []
    assert not list(folder.parent.rglob(f"{session_id}*"))


async def test_a_system_prompt_and_directories_reach_the_runtime(
    agent: AgentProcess, cwd: str, tmp_path: Path, env: dict[str, str], service: MessagesService
) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    for mode in ("append", "override"):
        prompt = {"mode": mode, "content": [{"type": "text", "text": "Speak like a pirate."}]}
        session_id = await agent.wire.new(cwd, systemPrompt=prompt, additionalDirectories=[str(beside)])
        await agent.wire.prompt(session_id, "Hello")
        await agent.wire.idle(session_id)
    for bad, field in (
        ({"systemPrompt": {"mode": "replace", "content": []}}, "systemPrompt.mode"),
        ({"additionalDirectories": ["relative"]}, "additionalDirectories.0"),
    ):
        with pytest.raises(WireError) as caught:
            await agent.wire.new(cwd, **bad)
        assert (caught.value.code, caught.value.data["field"]) == (-32602, field)
    for bad_cwd in ("relative", f"{cwd}/missing", "/" + "x" * 5000, "/x" * 5000):
        with pytest.raises(WireError) as caught:
            await agent.wire.new(bad_cwd)
        assert (caught.value.code, caught.value.data["field"]) == (-32602, "cwd")


class TestDamage:
    async def test_damaged_lines_are_skipped_counted_and_told_behind_the_marker(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        ids = [await agent.wire.prompt(session_id, words, key=words) for words in ("One", "Two")]
        await agent.wire.idle(session_id, 2)
        await agent.close()
        path = transcript(env, session_id)
        lines = path.read_bytes().splitlines(keepends=True)
        lines.insert(len(lines) // 3, b"\0" * 300 + b"\n")
        lines.insert(2 * len(lines) // 3, b'{"type": "user", "uuid": torn\n')
        path.write_bytes(b"".join(lines))
        async with agent_process(env) as second:
            await second.wire.initialize()
            await second.wire.resume(session_id, cwd, replay=True)
            assert list(entities(second.wire.updates(session_id)).values()) == ["One", "Done.", "Two", "Done."]
            (notice,) = second.wire.updates(session_id, "notice")
            assert notice["severity"] == "warning"
            marker = second.wire.update_index(session_id, "replay_complete")
            assert second.wire.update_index(session_id, "notice") == marker + 1
            assert [await second.wire.prompt(session_id, words, key=words) for words in ("One", "Two")] == ids

    async def test_a_transcript_that_cannot_be_read_fails_the_resume_without_a_marker(
        self, agent: AgentProcess, env: dict[str, str], cwd: str
    ) -> None:
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Hello", key="k")
        await agent.wire.idle(session_id)
        await agent.close()
        path = transcript(env, session_id)
        path.unlink()
        path.mkdir()
        async with agent_process(env) as second:
            await second.wire.initialize()
            with pytest.raises(WireError) as caught:
                await second.wire.resume(session_id, cwd, replay=True)
            assert (caught.value.code, caught.value.data) == (-32603, {"reason": "history_unreadable"})
            assert not second.wire.updates(session_id)
            # Without a replay it is active, and a key that nobody can look up is an error, not a second message.
            path.rmdir()
            path.symlink_to("/dev/zero")
            with pytest.raises(WireError) as caught:
                await resume_and_prompt(second, session_id, cwd)
            assert caught.value.code == -32603


class TestChildPermissions:
    @pytest.fixture
    def script(self) -> Script:
        task = ToolUse("Task", {"description": "Write", "prompt": "Child, write", "subagent_type": "general-purpose"})
        write = ToolUse("Bash", {"command": "touch made-by-child"})
        return Script(
            [Step("Child, write", [[write], [Text("Written.")]]), Step("Delegate", [[task], [Text("Done.")]])]
        )

    async def test_a_subagent_asks_on_its_own_session(self, agent: AgentProcess, env: dict[str, str], cwd: str) -> None:
        agent.wire.handle(
            "session/request_permission", lambda _: {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        )
        session_id = await agent.wire.new(cwd)
        await agent.wire.prompt(session_id, "Delegate")
        await agent.wire.until(lambda: Path(cwd, "made-by-child").exists() and agent.wire.asked)
        child_id = agent.wire.updates(session_id, "subagent_update")[0]["sessionId"]
        assert [asked["params"]["sessionId"] for asked in agent.wire.asked] == [child_id]
        calls = {update["toolCallId"] for update in agent.wire.updates(child_id, "tool_call_update")}
        assert agent.wire.asked[0]["params"]["subject"]["toolCall"]["toolCallId"] in calls


async def test_rows_keep_our_ids_and_nothing_of_ours_beside_them(
    agent: AgentProcess, env: dict[str, str], cwd: str
) -> None:
    session_id = await agent.wire.new(cwd)
    message_id = await agent.wire.prompt(session_id, "Hello", key="k")
    await agent.wire.idle(session_id)
    (row,) = [row for row in rows(env, session_id) if row.get("uuid") == message_id]
    assert row["message"]["content"] == "Hello"
    assert "sayagain" not in json.dumps(row)
