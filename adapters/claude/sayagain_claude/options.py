"""A session's config options: mode, model, effort and ultracode. Pure; the session does the talking.

One truth, which is the CLI's: what it says at its start, in ``system/status`` and ``system/init`` frames and in its
answer to ``get_settings``. Before it was heard, the list is a guess from the stored session and the user's settings,
and an update corrects it.

What is asked of a process (measured, claude 2.1.332)::

    set_permission_mode {mode}                          -> {mode}, and a status frame; refused with a reason
    set_model {model}                                   -> {model: <resolved id>}; takes any name
    apply_flag_settings {settings: {effortLevel}}       -> nothing, also for a level that has no effect
    apply_flag_settings {settings: {ultracode}}         -> nothing
    get_settings                                        -> {effective: {...}, applied: {model, effort, ultracode, ...}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sayagain.errors import InvalidParams
from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text

__all__ = ["BYPASS", "EFFORT", "EFFORTS", "MODE", "MODEL", "Choices", "Options", "bypass_possible"]

MODE: Final = "mode"
MODEL: Final = "model"
EFFORT: Final = "effort"
ULTRACODE: Final = "ultracode"

BYPASS: Final = "bypassPermissions"
_AUTO: Final = "auto"

EFFORTS: Final[Mapping[str, str]] = {
    "low": "Low",
    "medium": "Medium",
    "high": "High",
    "xhigh": "Extra high",
    "max": "Max",
}

_MODES: Final[Mapping[str, tuple[str, str]]] = {
    "default": ("Manual", "Asks before edits and commands"),
    "acceptEdits": ("Accept edits", "Edits files in the project without asking"),
    "plan": ("Plan", "Explores and makes a plan, changes nothing"),
    _AUTO: ("Auto", "Decides by itself what is safe, asks for the rest"),
    BYPASS: ("Bypass permissions", "Never asks: for sandboxes only"),
}
_OTHER_MODES: Final[Mapping[str, tuple[str, str]]] = {
    "dontAsk": ("Don't ask", "Denies everything that is not allowed already"),
}
"""Modes that the settings may choose, and that nobody is offered otherwise."""

_STALE: Final = frozenset({"model_fallback", "model_refusal_fallback", "model_refusal_no_fallback"})


def bypass_possible(env: Mapping[str, str], *, root: bool) -> bool:
    """Whether the CLI starts at all with bypass mode: as root only in a sandbox (measured: else it exits)."""
    return not root or env.get("IS_SANDBOX") == "1" or bool(env.get("CLAUDE_CODE_BUBBLEWRAP"))


@dataclass(frozen=True, slots=True)
class Choices:
    """What is known of a session's options without the CLI; ``None`` for what is not.

    ``mode`` and ``effort`` are those of its last prompt and answer; ``default_mode`` is the settings' mode.
    """

    mode: str | None = None
    effort: str | None = None
    default_mode: str | None = None


class Options:
    """``bypass`` says whether bypass mode is possible, ``known`` what was read of the session before its start.

    ``models`` are those that another session's CLI offered: the best guess for this one.
    """

    def __init__(self, *, bypass: bool, known: Choices | None = None, models: Sequence[Json] = ()) -> None:
        known = known or Choices()
        self._bypass = bypass
        self._bypass_disabled = False
        self._auto = True
        # Never asking again is chosen anew for each process, as in the CLI itself.
        stored = known.mode if known.mode != BYPASS else None
        # The CLI does not start as root in this mode, though the settings choose it (measured).
        forbidden = known.default_mode == BYPASS and not bypass
        self._mode = stored or (known.default_mode if not forbidden else None) or "default"
        self._effort = known.effort if known.effort in EFFORTS else None
        self._models: Sequence[Json] = models
        # ``None`` where the model or the account has no such thing.
        self._ultracode: bool | None = None
        self._guessed = True
        self._resolved = as_text(models[0].get("resolvedModel")) if models else ""
        self._model = as_text(models[0].get("value")) if models else ""
        self._initial: dict[str, str | bool] | None = None
        # Of these three the CLI itself restores the model, and the mode only at times (measured).
        self._chosen: dict[str, str | bool] = {EFFORT: self._effort} if self._effort else {}
        if stored or forbidden:
            self._chosen[MODE] = self._mode
        self._reported = self.wire()

    @property
    def models(self) -> Sequence[Json]:
        """The models that the CLI offers, as it describes them."""
        return self._models

    @property
    def modes(self) -> list[str]:
        """The modes that can be chosen now."""
        modes = [mode for mode in _MODES if mode != BYPASS or (self._bypass and not self._bypass_disabled)]
        return modes if self._auto else [mode for mode in modes if mode != _AUTO]

    @property
    def known(self) -> bool:
        """Whether the CLI has told its settings."""
        return not self._guessed

    # What the CLI is started with.

    def arguments(self) -> list[str]:
        """What a new process needs to go on as the last one left off."""
        arguments = ["--allow-dangerously-skip-permissions"] if self._bypass else []
        current, initial = self._current(), self._initial
        # One choice may have changed another, so it is their present values that count.
        kept = {
            key: value
            for key, value in current.items()
            if key in self._chosen or (initial is not None and value != initial.get(key))
        }
        flags = {MODE: "--permission-mode", MODEL: "--model", EFFORT: "--effort"}
        arguments += [f"{flag}={kept[key]}" for key, flag in flags.items() if kept.get(key)]
        if ULTRACODE in kept:
            arguments.append(f'--settings={{"ultracode":{"true" if kept[ULTRACODE] else "false"}}}')
        return arguments

    # What the CLI says.

    def started(self, answer: Json) -> None:
        """The answer to ``initialize``."""
        models = [model for model in map(as_mapping, as_list(answer.get("models"))) if as_text(model.get("value"))]
        self._models = models or self._models
        self._set_mode(answer.get("current_permission_mode"))

    def settings(self, answer: Json) -> None:
        """The answer to ``get_settings``."""
        effective, applied = as_mapping(answer.get("effective")), as_mapping(answer.get("applied"))
        permissions = as_mapping(effective.get("permissions"))
        self._bypass_disabled = permissions.get("disableBypassPermissionsMode") == "disable"
        resolved = as_text(applied.get("model"))
        if resolved:
            self._resolved = resolved
            wanted = (str(self._chosen.get(MODEL, "")), self._model, as_text(effective.get("model")))
            self._model = self._value_of(resolved, wanted if self.known else (*wanted[::2], "default"))
        effort = as_text(applied.get("effort"))
        self._effort = effort if effort in self._efforts() else None
        ultracode = applied.get("ultracode")
        self._ultracode = ultracode is True if ultracode is True or applied.get("ultracodeAvailable") is True else None
        disabled = "disable" in (effective.get("disableAutoMode"), permissions.get("disableAutoMode"))
        self._auto = not disabled and self._entry().get("supportsAutoMode") is True
        self._guessed = False
        if self._initial is None:
            self._initial = self._current()

    def frame(self, frame: Json) -> bool:
        """A ``system`` or ``result`` frame; true when ``get_settings`` would have something new to tell."""
        if frame.get("type") == "result":
            # A local command answered without a model: it may have been /model, /effort or /config.
            return frame.get("num_turns") == 0
        subtype = frame.get("subtype")
        if subtype in ("status", "init"):
            self._set_mode(frame.get("permissionMode"))
        if subtype == "init" and self.known:
            return as_text(frame.get("model")) not in ("", self._resolved)
        return subtype in _STALE

    def update(self) -> Block | None:
        """The ``config_option_update`` that is due, given once (CFG-6)."""
        wire = self.wire()
        if wire == self._reported:
            return None
        self._reported = wire
        return {"sessionUpdate": "config_option_update", "configOptions": wire}

    # What the client sets.

    def check(self, config_id: str, value: str | bool) -> None:
        """Raise :class:`InvalidParams` for what is not on offer (CFG-2). Complete once the settings are known."""
        if config_id not in (MODE, MODEL, EFFORT, ULTRACODE):
            raise InvalidParams("configId", "this session has no such option")
        if isinstance(value, bool) is not (config_id == ULTRACODE):
            raise InvalidParams("value", "must be of the option's type")
        if not self.known:
            return
        option = next((option for option in self.wire() if option["configId"] == config_id), None)
        if option is None:
            raise InvalidParams("configId", "the session's model has no such option")
        if config_id != ULTRACODE and value not in [entry["value"] for entry in option["options"]]:
            raise InvalidParams("value", "must be one of the option's values")

    def request(self, config_id: str, value: str | bool) -> Block:
        """The control request that sets an option."""
        if config_id == MODE:
            return {"subtype": "set_permission_mode", "mode": value}
        if config_id == MODEL:
            return {"subtype": "set_model", "model": value}
        setting = ULTRACODE if config_id == ULTRACODE else "effortLevel"
        return {"subtype": "apply_flag_settings", "settings": {setting: value}}

    def accepted(self, config_id: str, value: str | bool, answer: Json) -> None:
        """The CLI took the request. All but a mode is certain only after :meth:`settings`."""
        self._chosen[config_id] = value
        if config_id == MODE:
            self._set_mode(answer.get("mode") or value)

    def value(self, config_id: str) -> str | bool | None:
        """An option's current value."""
        return self._current().get(config_id)

    # On the wire.

    def wire(self) -> list[Block]:
        """The options in wire form, most important first (CFG-5)."""
        modes = self.modes if self._mode in self.modes else [*self.modes, self._mode]
        described = {**_MODES, **_OTHER_MODES}
        entries = [_entry(mode, *described.get(mode, (mode, ""))) for mode in modes]
        options = [_select(MODE, "Mode", "How much Claude does without asking", "mode", self._mode, entries)]
        if self._model:
            models = [_model_entry(model) for model in self._models]
            if self._model not in [entry["value"] for entry in models]:
                models.append(_entry(self._model, self._model, ""))
            options.append(_select(MODEL, "Model", "", "model", self._model, _unique(models)))
        efforts = self._efforts()
        if self._effort in efforts:
            entries = [_entry(level, EFFORTS[level], "") for level in efforts]
            about = "How thoroughly the model thinks"
            options.append(_select(EFFORT, "Effort", about, "thought_level", self._effort or "", entries))
        if self._ultracode is not None:
            about = "Has several agents work on a task in parallel"
            head: Block = {"configId": ULTRACODE, "name": "Ultracode", "description": about, "category": "model_config"}
            options.append(head | {"type": "boolean", "currentValue": self._ultracode})
        return options

    def _current(self) -> dict[str, str | bool]:
        current: dict[str, str | bool | None] = {
            MODE: self._mode,
            MODEL: self._model,
            EFFORT: self._effort,
            ULTRACODE: self._ultracode,
        }
        return {key: value for key, value in current.items() if value is not None}

    def _set_mode(self, mode: object) -> None:
        if isinstance(mode, str) and mode:
            self._mode = mode

    def _entry(self) -> Json:
        return as_mapping(next((model for model in self._models if model.get("value") == self._model), None))

    def _efforts(self) -> list[str]:
        levels = as_list(self._entry().get("supportedEffortLevels"))
        return [level for level in EFFORTS if level in levels]

    def _value_of(self, resolved: str, wanted: Iterable[str | None]) -> str:
        """The model's name in the list: several names may stand for one model, so the one that was asked for."""
        names = {as_text(model["value"]): as_text(model.get("resolvedModel")) for model in self._models}
        for name in (*wanted, "default", *names):
            if name and names.get(name) == resolved:
                return name
        return resolved


def _entry(value: str, name: str, description: str) -> Block:
    entry: Block = {"value": value, "name": name}
    return entry | {"description": description} if description else entry


def _model_entry(model: Json) -> Block:
    value = as_text(model["value"])
    return _entry(value, as_text(model.get("displayName")) or value, as_text(model.get("description")))


def _unique(entries: list[Block]) -> list[Block]:
    return list({entry["value"]: entry for entry in entries}.values())


def _select(config_id: str, name: str, description: str, category: str, value: str, options: list[Any]) -> Block:
    option: Block = {"configId": config_id, "name": name, "category": category, "type": "select"}
    if description:
        option["description"] = description
    return option | {"currentValue": value, "options": options}
