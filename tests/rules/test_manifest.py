"""The rules and their tests, checked both ways."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from rules.manifest import ELSEWHERE, NOT_OURS, RULES

TESTS = Path(__file__).parents[1]


@cache
def named() -> dict[str, list[str]]:
    """The tests of each rule: ``{"KEY-3": ["tests/agent/test_keys.py::test_…"]}``."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if "@rule(" not in (source := path.read_text(encoding="utf-8")):
            continue
        tree = ast.parse(source)
        if not any(isinstance(node, ast.ImportFrom) and node.module == "support_rules" for node in tree.body):
            continue
        for test in ast.walk(tree):
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in test.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "rule":
                        assert test.name.startswith("test_")
                        for argument in decorator.args:
                            name = f"{path.relative_to(TESTS.parent).as_posix()}::{test.name}"
                            found.setdefault(ast.literal_eval(argument), []).append(name)
    return found


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("rule_id", RULES)
def test_every_rule_has_a_test_or_a_reason(rule_id: str) -> None:
    places = [rule_id in named(), rule_id in ELSEWHERE, rule_id in NOT_OURS]
    assert sum(places) == 1, "a test, or tests elsewhere, or a reason: one of them"


def test_tests_name_known_rules() -> None:
    assert {rule_id for rule_id in named() if rule_id not in RULES} == set()
    assert set(ELSEWHERE) | set(NOT_OURS) <= set(RULES)


@pytest.mark.parametrize("rule_id", ELSEWHERE)
def test_what_is_shown_elsewhere_is_there(rule_id: str) -> None:
    for test in ELSEWHERE[rule_id]:
        path, name = test.split("::")
        assert name in functions(TESTS.parent / path)


def test_every_line_says_something() -> None:
    assert all(RULES.values())
    assert all(NOT_OURS.values())
    assert len(set(RULES.values())) >= len(RULES) - 1
