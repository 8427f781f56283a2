"""Any message gives the same entities streamed, whole and stored, however its text is cut."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sayagain.runtime.events import RuntimeEvent
from sayagain_claude.translate.live import LiveTranslator
from support_folding import Entities, fold
from translate.rows import SESSION, Row, answer, read, store

words = st.text(alphabet="ab \n😀", max_size=12)
blocks = st.lists(
    st.one_of(
        st.builds(lambda value: {"type": "text", "text": value}, words),
        st.builds(lambda value: {"type": "thinking", "thinking": value, "signature": "x"}, words),
        st.builds(lambda value: {"type": "redacted_thinking", "data": value}, st.just("x")),
        st.just({"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}),
        st.just({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
    ),
    max_size=7,
)
cuts = st.lists(st.integers(0, 12), max_size=4)


def _numbered(content: list[Row]) -> list[Row]:
    return [
        block | {"id": f"t{index}"} if block["type"] == "tool_use" else block for index, block in enumerate(content)
    ]


def _pieces(value: str, where: list[int]) -> list[str]:
    ends = sorted({cut for cut in where if 0 < cut < len(value)})
    return [value[start:end] for start, end in zip([0, *ends], [*ends, len(value)], strict=True)]


def _streamed(content: list[Row], where: list[int]) -> list[RuntimeEvent]:
    translator = LiveTranslator(SESSION, "/project")
    events: list[RuntimeEvent] = []

    def stream(**event: Any) -> None:
        events.extend(translator.frame({"type": "stream_event", "event": event, "api_message_id": "m1"}))

    stream(type="message_start", message={"id": "m1", "model": "x", "usage": {}})
    for index, block in enumerate(content):
        kind = block["type"]
        key = {"text": "text", "thinking": "thinking"}.get(kind)
        start = block | ({key: ""} if key else {}) | ({"input": {}} if kind == "tool_use" else {})
        stream(type="content_block_start", index=index, content_block=start)
        for piece in _pieces(block[key], where) if key else ():
            stream(type="content_block_delta", index=index, delta={"type": f"{key}_delta", key: piece})
        events.extend(translator.frame(answer("m1", block)))
        stream(type="content_block_stop", index=index)
    stream(type="message_delta", delta={}, usage={})
    stream(type="message_stop")
    return events


def _stored(content: list[Row]) -> Entities:
    with tempfile.TemporaryDirectory() as folder:
        return fold(read(store(Path(folder), [answer("m1", block) for block in content]), live=True))


def _without_status(entities: Entities) -> Entities:
    return {key: {name: value for name, value in e.items() if name != "status"} for key, e in entities.items()}


@given(blocks, cuts)
def test_streamed_and_stored_messages_are_equal(content: list[Row], where: list[int]) -> None:
    content = _numbered(content)
    assert _without_status(fold(_streamed(content, where))) == _without_status(_stored(content))


@given(blocks)
def test_whole_and_stored_messages_are_equal(content: list[Row]) -> None:
    content = _numbered(content)
    translator = LiveTranslator(SESSION, "/project")
    events = [event for block in content for event in translator.frame(answer("m1", block))]
    assert _without_status(fold(events)) == _without_status(_stored(content))
