"""Config options as the CLI's words make them, without a CLI (CFG-2 to CFG-6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sayagain.errors import InvalidParams
from sayagain_claude.choices import first_choices
from sayagain_claude.options import Choices, Options, bypass_possible
from support_schema import fault_in, needs_oracles

LEVELS = ["low", "medium", "high", "xhigh", "max"]


def model(value: str, resolved: str, *, levels: Any = LEVELS, auto: bool = True) -> dict[str, Any]:
    entry = {"value": value, "resolvedModel": resolved, "displayName": value.title(), "supportsAutoMode": auto}
    return entry | ({"supportedEffortLevels": levels} if levels else {})


MODELS = [
    model("default", "claude-opus"),
    model("opus", "claude-opus"),
    model("haiku", "claude-haiku", auto=False),
    model("old", "claude-old", levels=None, auto=False),
]


def settings(resolved: str = "claude-opus", effort: Any = "medium", **effective: Any) -> dict[str, Any]:
    return {"effective": effective, "applied": {"model": resolved, "effort": effort}}


def started(*, bypass: bool = False, known: Choices | None = None, mode: str = "default") -> Options:
    options = Options(bypass=bypass, known=known)
    options.started({"models": MODELS, "current_permission_mode": mode})
    options.settings(settings())
    return options


def values(options: Options) -> dict[str, Any]:
    return {option["configId"]: option["currentValue"] for option in options.wire()}


def offered(options: Options, config_id: str) -> list[str]:
    return [e["value"] for option in options.wire() if option["configId"] == config_id for e in option["options"]]


def test_an_update_is_given_once_for_each_change() -> None:
    options = Options(bypass=False)
    assert options.update() is None
    options.started({"models": MODELS, "current_permission_mode": "default"})
    options.settings(settings())
    update = options.update()
    assert update is not None
    assert update["configOptions"] == options.wire()
    assert options.update() is None
    assert not options.frame({"type": "system", "subtype": "status", "permissionMode": "plan"})
    assert options.update() is not None
    options.frame({"type": "system", "subtype": "init", "permissionMode": "plan", "model": "claude-opus"})
    assert options.update() is None


def test_the_name_that_was_asked_for_is_kept_while_its_model_works() -> None:
    options = started()
    assert values(options)["model"] == "default"
    options.accepted("model", "opus", {})
    options.settings(settings())
    assert values(options)["model"] == "opus"
    options.settings(settings("claude-haiku"))
    assert values(options)["model"] == "haiku"
    options.settings(settings("claude-opus", model="opus"))
    assert values(options)["model"] == "opus"


def test_a_model_that_is_not_listed_is_listed() -> None:
    options = started()
    options.settings(settings("claude-secret"))
    assert values(options) == {"mode": "default", "model": "claude-secret"}
    assert offered(options, "model")[-1] == "claude-secret"


def test_effort_and_auto_mode_go_with_the_model() -> None:
    options = started()
    options.settings(settings("claude-old", None))
    assert values(options) == {"mode": "default", "model": "old"}
    assert "auto" not in offered(options, "mode")
    for option, value in (("effort", "low"), ("ultracode", True)):
        with pytest.raises(InvalidParams):
            options.check(option, value)
    options.frame({"type": "system", "subtype": "status", "permissionMode": "dontAsk"})
    assert offered(options, "mode")[-1] == "dontAsk"


@pytest.mark.parametrize(
    ("frame", "stale"),
    [
        ({"type": "result", "num_turns": 0}, True),
        ({"type": "result", "num_turns": 1}, False),
        ({"type": "system", "subtype": "init", "model": "claude-haiku"}, True),
        ({"type": "system", "subtype": "init", "model": "claude-opus"}, False),
        ({"type": "system", "subtype": "init"}, False),
        ({"type": "system", "subtype": "model_fallback"}, True),
        ({"type": "system", "subtype": "status", "permissionMode": 5}, False),
        ({"type": "system"}, False),
    ],
)
def test_what_tells_of_a_change_that_must_be_asked_for(frame: dict[str, Any], stale: bool) -> None:
    assert started().frame(frame) is stale


@pytest.mark.parametrize(
    ("known", "mode", "arguments"),
    [
        (Choices(), "default", []),
        (Choices("plan", "high"), "plan", ["--permission-mode=plan", "--effort=high"]),
        (Choices(default_mode="plan"), "plan", []),
        (Choices("acceptEdits", None, "plan"), "acceptEdits", ["--permission-mode=acceptEdits"]),
        (Choices("bypassPermissions"), "default", []),
        (Choices(None, None, "bypassPermissions"), "default", ["--permission-mode=default"]),
        (Choices("bypassPermissions", None, "bypassPermissions"), "default", ["--permission-mode=default"]),
        (Choices(None, "ludicrous"), "default", []),
    ],
)
def test_a_process_goes_on_where_the_stored_session_was(known: Choices, mode: str, arguments: list[str]) -> None:
    options = Options(bypass=False, known=known)
    assert values(options)["mode"] == mode
    assert options.arguments() == arguments


def test_bypassing_by_the_settings_is_possible_where_the_cli_starts_with_it() -> None:
    options = Options(bypass=True, known=Choices(default_mode="bypassPermissions"))
    assert values(options)["mode"] == "bypassPermissions"
    assert options.arguments() == ["--allow-dangerously-skip-permissions"]


def test_another_process_gets_what_was_chosen_and_what_has_changed() -> None:
    options = started()
    assert options.arguments() == []
    options.accepted("effort", "medium", {})
    options.frame({"type": "system", "subtype": "status", "permissionMode": "acceptEdits"})
    options.settings(settings("claude-haiku"))
    assert options.arguments() == ["--permission-mode=acceptEdits", "--model=haiku", "--effort=medium"]


def test_ultracode_is_there_where_the_cli_has_it() -> None:
    options = started()
    assert "ultracode" not in values(options)
    available = settings()
    available["applied"] |= {"ultracode": False, "ultracodeAvailable": True}
    options.settings(available)
    assert values(options)["ultracode"] is False
    assert options.arguments() == ['--settings={"ultracode":false}']
    options.check("ultracode", True)
    assert options.request("ultracode", True)["settings"] == {"ultracode": True}
    options.accepted("ultracode", True, {})
    available["applied"] |= {"ultracode": True, "ultracodeAvailable": False}
    options.settings(available)
    assert values(options)["ultracode"] is True
    assert options.arguments() == ['--settings={"ultracode":true}']
    for value in ("on", "true"):
        with pytest.raises(InvalidParams):
            options.check("ultracode", value)


@pytest.mark.parametrize(
    ("env", "root", "possible"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"IS_SANDBOX": "1"}, True, True),
        ({"IS_SANDBOX": "0"}, True, False),
        ({"CLAUDE_CODE_BUBBLEWRAP": "1"}, True, True),
    ],
)
def test_where_bypassing_is_possible(env: dict[str, str], root: bool, possible: bool) -> None:
    assert bypass_possible(env, root=root) is possible


def test_the_models_of_another_session_are_a_guess() -> None:
    options = Options(bypass=False, models=MODELS)
    assert values(options) == {"mode": "default", "model": "default"}
    options.check("model", "made-up")  # the CLI may know it: it is asked
    options.settings(settings())
    with pytest.raises(InvalidParams):
        options.check("model", "made-up")


@needs_oracles
def test_every_list_is_valid() -> None:
    for options in (Options(bypass=True), started(bypass=True), Options(bypass=False, models=MODELS)):
        for option in options.wire():
            assert fault_in("SessionConfigOption", option) is None


class TestFirstChoices:
    def row(self, kind: str, **fields: Any) -> str:
        return json.dumps({"type": kind, **fields})

    def write(self, path: Path, *lines: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def test_the_last_prompt_and_answer_count(self, tmp_path: Path) -> None:
        transcript = self.write(
            tmp_path / "s.jsonl",
            self.row("user", permissionMode="plan"),
            self.row("assistant", effort="low"),
            self.row("user", permissionMode="acceptEdits"),
            self.row("assistant", effort="max", isSidechain=True),
            self.row("user", message="a tool's result"),
            '{"type": "user", "permissionMode": "torn',
            '["permissionMode"]',
        )
        assert first_choices(tmp_path, str(tmp_path), transcript) == Choices("acceptEdits", "low")

    def test_what_is_not_there_is_unknown(self, tmp_path: Path) -> None:
        assert first_choices(tmp_path, str(tmp_path), tmp_path / "missing") == Choices()
        assert first_choices(tmp_path, str(tmp_path)) == Choices()

    def test_the_nearest_settings_count(self, tmp_path: Path) -> None:
        def mode(value: object) -> str:
            return json.dumps({"permissions": {"defaultMode": value}})

        def first() -> str | None:
            return first_choices(tmp_path / "config", str(tmp_path)).default_mode

        self.write(tmp_path / "config" / "settings.json", mode("manual"))
        assert first() == "default"
        self.write(tmp_path / ".claude" / "settings.json", mode("plan"))
        assert first() == "plan"
        self.write(tmp_path / ".claude" / "settings.local.json", mode("auto"))
        assert first() == "auto"
        self.write(tmp_path / ".claude" / "settings.local.json", "{")
        self.write(tmp_path / ".claude" / "settings.json", mode(["plan"]))
        assert first() == "default"
