"""The table of methods is whole in itself."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import sayagain.protocol.v2
from sayagain.protocol.v2.compiler import validator
from sayagain.protocol.v2.methods import METHODS, Method, served

MODULES = [module.name for module in pkgutil.iter_modules(sayagain.protocol.v2.__path__)]


def test_no_method_is_there_twice() -> None:
    assert len({(method.name, method.kind, method.side) for method in METHODS}) == len(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.kind} {method.name}")
def test_types_exist_and_can_be_validated(method: Method) -> None:
    validator(method.params_type())
    validator(method.result_type())


def test_any_result_of_a_forwarded_request_is_fine() -> None:
    assert served("proxy", "request")["proxy/successor"].result_type() is Any


@pytest.mark.parametrize("method", [m for m in METHODS if m.kind == "notification"], ids=lambda method: method.name)
def test_notifications_have_no_result(method: Method) -> None:
    assert method.result is None


def test_what_each_side_serves() -> None:
    assert served("agent", "request")["session/prompt"].stable
    assert not served("agent", "request")["session/fork"].stable
    assert set(served("agent", "notification")) == {"session/cancel", "mcp/message", "$/cancel_request"}
    assert set(served("client", "request")) == {"session/request_permission", "elicitation/create", "mcp/message"}
    assert "$/cancel_request" in served("client", "notification")
    assert "session/update" not in served("agent", "notification")


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_exports(name: str) -> None:
    module = importlib.import_module(f"sayagain.protocol.v2.{name}")
    assert module.__doc__
    missing = [export for export in module.__all__ if not hasattr(module, export)]
    assert not missing
