"""The version of the protocol is written down once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sayagain
from sayagain.protocol import versions

ROOT = Path(sayagain.__file__).parent
ELSEWHERE = [path for path in sorted(ROOT.rglob("*.py")) if path != Path(versions.__file__)]


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_else_says_it(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                assert not name.endswith(("PROTOCOL_VERSION", "SUPPORTED_VERSIONS")), name
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                assert not any(
                    isinstance(default, ast.Constant) and default.value == 2 for default in _of_version(node)
                )
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    named = isinstance(key, ast.Constant) and key.value == "protocolVersion"
                    assert not (named and isinstance(value, ast.Constant)), ast.unparse(node)
            case ast.Compare(left=ast.Name(id="version"), comparators=others):
                assert not any(isinstance(other, ast.Constant) and other.value == 2 for other in others)
            case _:
                pass


def _of_version(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    """The defaults of its parameters named so."""
    arguments = function.args.args[-len(function.args.defaults) :] if function.args.defaults else []
    pairs = zip(arguments, function.args.defaults, strict=True)
    return [default for argument, default in pairs if argument.arg == "version"]
