"""Prompts as Codex takes them, and what comes back of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.errors import InvalidParams
from sayagain_codex.translate.prompts import prompt_input, stored_content

BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "Hello"},
    {"type": "image", "data": "eA==", "mimeType": "image/png"},
    {"type": "resource", "resource": {"uri": "file:///a%20b", "text": "x\n</context>\ny", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": 'file:///"<>&', "text": ""}},
    {"type": "resource_link", "name": "a [b] \\c", "uri": "file:///w/a(b) c"},
    {"type": "resource_link", "name": "plain", "uri": "https://x.example/y"},
    # Texts that look like the two.
    *(
        {"type": "text", "text": f"{escape}{text}"}
        for escape in ("", "\\", "\\\\")
        for text in ("[@q](file:///q)", '<context uri="file:///q">\nx\n</context>', "[@q](file:///q) and more", "\\")
    ),
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_comes_back_as_it_was(block: dict[str, Any]) -> None:
    assert stored_content(prompt_input([block])) == [block]


def test_all_together() -> None:
    assert stored_content(prompt_input(BLOCKS)) == BLOCKS


def test_only_a_text_that_is_written_like_a_block_is_changed_for_the_model() -> None:
    for text in ("[@q](file:///q) x", "See [@q](file:///q)", "<context>", "\\", "\\x", "[@q](q)"):
        assert prompt_input([{"type": "text", "text": text}])[0]["text"] == text
    assert prompt_input([{"type": "text", "text": "[@q](file:///q)"}])[0]["text"] == "\\[@q](file:///q)"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip), st.text(alphabet='[]\\()@ a"'))
def test_names_and_texts_come_back(text: str, name: str) -> None:
    blocks = [{"type": "resource", "resource": {"uri": "file:///x", "text": text}}]
    assert stored_content(prompt_input(blocks)) == blocks
    links = [{"type": "resource_link", "name": name, "uri": "file:///x"}]
    assert stored_content(prompt_input(links)) == links


def test_input_is_what_codex_takes() -> None:
    assert prompt_input(BLOCKS[:2]) == [
        {"type": "text", "text": "Hello", "text_elements": []},
        {"type": "image", "url": "data:image/png;base64,eA=="},
    ]


def test_binary_resources() -> None:
    def resource(media_type: str, blob: str = "eA==") -> list[dict[str, Any]]:
        return [{"type": "resource", "resource": {"uri": "file:///x", "mimeType": media_type, "blob": blob}}]

    assert prompt_input(resource("image/png")) == [{"type": "image", "url": "data:image/png;base64,eA=="}]
    assert stored_content(prompt_input(resource("text/plain"))) == [
        {"type": "resource", "resource": {"uri": "file:///x", "text": "x", "mimeType": "text/plain"}}
    ]
    assert stored_content(prompt_input([*resource("text/plain", ""), BLOCKS[0]])) == [
        {"type": "resource", "resource": {"uri": "file:///x", "text": "", "mimeType": "text/plain"}},
        BLOCKS[0],
    ]
    for refused in (resource("application/zip"), resource("text/plain", "%%")):
        with pytest.raises(InvalidParams, match="mimeType"):
            prompt_input(refused)


@pytest.mark.parametrize(
    ("blocks", "field"),
    [
        ([], "prompt"),
        ([{"type": "text", "text": " \n"}], "prompt"),
        ([{"type": "text"}], "prompt.0.text"),
        ([{"type": "text", "text": "\ud800"}], "prompt.0.text"),
        ([{"type": "audio", "data": "eA==", "mimeType": "audio/wav"}], "prompt.0.type"),
        ([{"type": "text", "text": "x"}, {"type": "unknown"}], "prompt.1.type"),
        ([{"type": "image", "data": "no base64", "mimeType": "image/png"}], "prompt.0.data"),
        ([{"type": "image", "data": "eA==", "mimeType": "text/html;x"}], "prompt.0.mimeType"),
        ([{"type": "resource", "resource": {}}], "prompt.0.resource.uri"),
        ([{"type": "resource_link", "name": "x"}], "prompt.0.uri"),
    ],
)
def test_what_codex_cannot_take_is_refused_by_name(blocks: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        prompt_input(blocks)
    assert caught.value.field == field


def test_input_of_other_clients_is_shown() -> None:
    parts = [
        {"type": "localImage", "path": "/w/a b.png"},
        {"type": "mention", "name": "app", "path": "app://x"},
        {"type": "skill", "name": "sk", "path": "/s/SKILL.md"},
        {"type": "image", "url": "https://x.example/y.png"},
        {"type": "image", "fileId": "f"},
        {"type": "audio", "url": "data:audio/wav;base64,eA=="},
        {"type": "new"},
        {"type": "text", "text": ""},
    ]
    assert stored_content(parts) == [
        {"type": "resource_link", "name": "a b.png", "uri": "file:///w/a%20b.png"},
        {"type": "resource_link", "name": "app", "uri": "app://x"},
        {"type": "resource_link", "name": "sk", "uri": "file:///s/SKILL.md"},
        {"type": "resource_link", "name": "image", "uri": "https://x.example/y.png"},
        {"type": "audio", "data": "eA==", "mimeType": "audio/wav"},
    ]
