"""Prompt blocks go to the runtime and come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.errors import InvalidParams
from sayagain_claude.translate.prompts import prompt_content, stored_content

PIXEL = "iVBORw0KGgo="
LINK = {"type": "resource_link", "name": "a.py", "uri": "file:///project/a.py"}
FILE = {"type": "resource", "resource": {"uri": "file:///project/a.py", "text": "x = 1\n", "mimeType": "text/x-python"}}
TEXT = {"type": "text", "text": "Look"}


@pytest.mark.parametrize(
    "block",
    [
        TEXT,
        {"type": "text", "text": "  spaces \n"},
        {"type": "text", "text": "[@name](not a link)"},
        {"type": "text", "text": "/compact now"},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        LINK,
        LINK | {"name": "we]ird\\na[me"},
        LINK | {"uri": "file:///project/with (brackets) and blanks.py"},
        FILE,
        {"type": "resource", "resource": {"uri": 'zed:///sel?a="b"&c', "text": '</context>\n<context uri="x">'}},
        {"type": "resource", "resource": {"uri": "file:///d.pdf", "blob": "JVBERg==", "mimeType": "application/pdf"}},
    ],
)
def test_blocks_come_back_as_they_were_sent(block: dict[str, Any]) -> None:
    assert stored_content(prompt_content([block])) == [block]
    assert stored_content(prompt_content([TEXT, block])) == [TEXT, block]


links = st.builds(
    lambda name, path: {"type": "resource_link", "name": name, "uri": f"file:///{path}"},
    st.text(st.characters(categories=("L", "P", "N"))),
    st.text(st.characters(categories=("L", "P", "Z"), exclude_characters="<>")),
)
texts = st.text(st.characters(exclude_categories=("Cs",))).filter(bool)
files = st.builds(lambda words: {"type": "resource", "resource": {"uri": "file:///f", "text": words}}, texts)


@given(st.lists(links | files, min_size=1, max_size=4))
def test_any_links_and_files_come_back(blocks: list[dict[str, Any]]) -> None:
    assert stored_content(prompt_content(blocks)) == blocks


def test_a_single_text_is_a_string_so_that_the_runtime_sees_its_commands() -> None:
    assert prompt_content([{"type": "text", "text": "/compact"}]) == "/compact"


def test_what_cannot_come_back_is_known() -> None:
    sent = {"type": "image", "data": PIXEL, "mimeType": "image/png", "uri": "file:///a.png", "_meta": {"a": 1}}
    assert stored_content(prompt_content([sent])) == [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]
    embedded = {"type": "resource", "resource": {"uri": "file:///a.png", "blob": PIXEL, "mimeType": "image/png"}}
    assert stored_content(prompt_content([embedded])) == [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]


@pytest.mark.parametrize(
    ("blocks", "field"),
    [
        ([], "prompt"),
        ([{"type": "text", "text": " \n"}], "prompt"),
        ([TEXT, {"type": "audio", "data": "", "mimeType": "audio/wav"}], "prompt.1.type"),
        ([{"type": "_custom"}], "prompt.0.type"),
        ([{}], "prompt.0.type"),
        ([{"type": "text"}], "prompt.0.text"),
        ([{"type": "text", "text": "\ud800"}], "prompt.0.text"),
        ([{"type": "image", "data": "", "mimeType": "image/png"}], "prompt.0.data"),
        ([{"type": "image", "data": "%%%", "mimeType": "image/png"}], "prompt.0.data"),
        ([{"type": "image", "data": PIXEL, "mimeType": "image/tiff"}], "prompt.0.mimeType"),
        (
            [{"type": "resource", "resource": {"uri": "a:b", "blob": PIXEL, "mimeType": "x/y"}}],
            "prompt.0.resource.mimeType",
        ),
        ([{"type": "resource", "resource": 3}], "prompt.0.resource.uri"),
        ([{"type": "resource_link", "uri": "a:b"}], "prompt.0.name"),
    ],
)
def test_what_is_not_supported_names_its_block(blocks: list[Any], field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        prompt_content(blocks)
    assert caught.value.field == field


def test_reminders_in_old_rows_are_no_part_of_what_the_user_said() -> None:
    stored = [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "Hi"}]
    assert stored_content(stored, verbatim=False) == [{"type": "text", "text": "Hi"}]
    assert len(stored_content(stored)) == 2
