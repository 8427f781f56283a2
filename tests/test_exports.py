"""Every product module says what it exports, and what is public says what it is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import sayagain
import sayagain_claude
import sayagain_codex


def modules() -> list[str]:
    found = []
    for package in (sayagain, sayagain_claude, sayagain_codex):
        found.append(package.__name__)
        found += [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    # Importing it is running it.
    return [name for name in found if not name.endswith("__main__")]


MODULES = modules()


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize("name", MODULES)
def test_exports(name: str) -> None:
    module = load(name)
    assert module.__doc__, f"{name} has no docstring"
    if name == "sayagain" or not _code(module):
        return
    exported = module.__all__
    assert len(set(exported)) == len(exported)
    missing = [each for each in exported if not hasattr(module, each)]
    assert missing == []


@pytest.mark.parametrize("name", MODULES)
def test_what_is_public_has_a_docstring(name: str) -> None:
    module = load(name)
    for each in getattr(module, "__all__", ()):
        value = getattr(module, each)
        if not (inspect.isclass(value) or inspect.isfunction(value)) or value.__module__ != name:
            continue
        if "<locals>" in value.__qualname__:
            # A constant that happens to be callable.
            continue
        assert _documented(value), f"{name}.{each} has no docstring"


def _code(module: ModuleType) -> bool:
    """Whether the module defines anything; a package that only holds others has nothing to export."""
    return any(getattr(value, "__module__", None) == module.__name__ for value in vars(module).values())


def _documented(value: type | object) -> bool:
    text = value.__doc__
    if not text:
        return False
    # Dataclasses and typed dicts make up a docstring of their own.
    made_up = inspect.isclass(value) and text.startswith(f"{value.__name__}(")
    return not made_up
