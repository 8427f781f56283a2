"""The pages about the runtimes say which test shows what: each of them is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGES = ["claude.md", "codex.md"]


def defined_in(path: Path) -> Iterator[str]:
    for item in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield item.name
        elif isinstance(item, ast.ClassDef):
            members = (member for member in item.body if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef))
            yield from (f"{item.name}::{member.name}" for member in members)


def named(page: str) -> Iterator[tuple[str, str]]:
    """(file, test) of each mention; a test without a file belongs to the one named before it in its row."""
    for line in (TESTS.parent / "docs" / page).read_text(encoding="utf-8").splitlines():
        file = ""
        for code in re.findall(r"`([^`]+)`", line):
            path, _, test = code.partition(".py::")
            if test:
                file = f"{path}.py"
            elif re.fullmatch(r"(Test\w+::)?test_\w+", code):
                test = code
            if test:
                yield file, test


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_is_there(page: str) -> None:
    known: dict[str, set[str]] = {}
    missing: list[tuple[str, str]] = []
    for file, test in named(page):
        if file not in known:
            known[file] = set(defined_in(TESTS / file))
        if test not in known[file]:
            missing.append((file, test))
    assert known
    assert missing == []
