"""What a session's events look like on a terminal."""

from __future__ import annotations

from typing import Any

from sayagain.chat.render import Renderer, clean
from sayagain.client import Moved, Reconnected, Update


def shown(*updates: dict[str, Any], renderer: Renderer | None = None) -> str:
    renderer = renderer or Renderer()
    return "".join(text for update in updates for _, text in renderer.take(Update("s", update)))


def chunk(text: str, message_id: str = "m", kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": message_id, "content": {"type": "text", "text": text}}


def whole(text: str, message_id: str = "m", kind: str = "agent_message") -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": message_id, "content": [{"type": "text", "text": text}]}


RUNNING = {"sessionUpdate": "state_update", "state": "running"}


def test_chunks_are_joined_and_a_full_message_adds_what_is_new() -> None:
    assert shown(chunk("Hel"), chunk("lo"), whole("Hello")) == "Hello\n"
    assert shown(chunk("Hel"), whole("Hello")) == "Hello\n"
    assert shown(chunk("Hullo"), whole("Hello")) == "Hullo\nHello\n"
    assert shown(chunk("a"), chunk("b", "m2")) == "a\nb"


def test_a_replayed_message_is_shown_once() -> None:
    renderer = Renderer()
    assert shown(whole("Hello"), renderer=renderer) == "Hello\n"
    assert shown(whole("Hello"), renderer=renderer) == ""


def test_what_was_typed_is_not_shown_again() -> None:
    renderer = Renderer()
    renderer.typed("mine")
    assert shown(whole("mine", kind="user_message"), renderer=renderer) == ""
    assert shown(whole("mine", "m2", kind="user_message"), renderer=renderer) == "> mine\n"


def test_tools_are_shown_when_they_begin_and_end() -> None:
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "t"}
    out = shown(
        {**call, "title": "ls", "status": "in_progress"},
        {**call, "status": "in_progress"},
        {**call, "status": "failed"},
    )
    assert out == "… ls\n✗ ls\n"


def test_ends_of_work() -> None:
    idle = {"sessionUpdate": "state_update", "state": "idle"}
    assert shown(RUNNING, chunk("a"), {**idle, "stopReason": "end_turn"}) == "a\n"
    assert shown(RUNNING, {**idle, "stopReason": "cancelled"}) == "(cancelled)\n"
    failed = {**idle, "stopReason": "error", "error": {"code": -32603, "message": "No model"}}
    assert shown(RUNNING, failed) == "The work failed: No model\n"
    # A snapshot after a resume tells of work that ended before.
    assert shown({**idle, "stopReason": "cancelled"}) == ""


def test_nothing_that_a_terminal_obeys() -> None:
    assert clean("a\x1b[2Jb\r\n\tc\x07\u202ed\x9b") == "a�[2Jb\n\tc��d�"
    assert clean("👩\u200d🚀 é") == "👩🚀 é"
    assert "\x1b" not in shown(chunk("\x1b]0;title\x07"), {"sessionUpdate": "notice", "message": "\x1b[31m"})


def test_whatever_an_agent_sends() -> None:
    for update in (
        {"sessionUpdate": "agent_message_chunk"},
        {"sessionUpdate": "agent_message", "content": 7},
        {"sessionUpdate": "agent_message", "content": [None, {"type": "image"}, {"text": 7}]},
        {"sessionUpdate": "tool_call_update", "title": None, "status": []},
        {"sessionUpdate": "plan_update", "plan": {"entries": [None, {}]}},
        {"sessionUpdate": "state_update", "state": "idle", "stopReason": 7},
        {"sessionUpdate": "_custom"},
        {},
    ):
        assert isinstance(shown(RUNNING, update), str)


def test_the_clients_own_events() -> None:
    renderer = Renderer()
    assert "is back" in "".join(text for _, text in renderer.take(Reconnected("s")))
    assert "2 unconfirmed" in "".join(text for _, text in renderer.take(Moved("s", "t", ["a", "b"])))
