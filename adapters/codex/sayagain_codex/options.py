"""The session's config options: what Codex calls settings, as ACP's selects and back. Pure.

Codex keeps a thread's settings with it and brings them back on a resume (measured), so nothing is remembered here but
what it last said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.errors import InvalidParams
from sayagain.protocol.loose import as_list, as_mapping, as_text

__all__ = ["MODES", "Options"]

Params = Mapping[str, Any]
Json = dict[str, Any]

MODES: Final[Mapping[str, Json]] = {
    "read-only": {
        "name": "Read only",
        "description": "Reads files; asks before it changes something or uses the network",
        "set": {"approvalPolicy": "on-request", "permissions": ":read-only"},
    },
    "workspace-write": {
        "name": "Workspace",
        "description": "Edits files in the workspace and runs commands there; asks for everything else",
        "set": {"approvalPolicy": "on-request", "permissions": ":workspace"},
    },
    "full-access": {
        "name": "Full access",
        "description": "Runs everything without a sandbox and never asks",
        "set": {"approvalPolicy": "never", "permissions": ":danger-full-access"},
    },
}
"""Approval policy and permission profile together, as users think of them."""

_CUSTOM: Final = "custom"
_SANDBOXES: Final = {"readOnly": "read-only", "workspaceWrite": "workspace-write", "dangerFullAccess": "full-access"}
_COLLABORATION: Final = {
    "default": ("Default", "Works on the task"),
    "plan": ("Plan", "Explores and talks first, then proposes a plan"),
}


class Options:
    """The settings of one thread, and the models that there are."""

    def __init__(self) -> None:
        self._settings: Json = {}
        self._models: Sequence[Params] = ()

    def loaded(self, result: Params) -> None:
        """The answer to ``thread/start``, ``thread/resume`` or ``thread/fork``."""
        collaboration: Params = result.get("collaborationMode") or {}
        self._settings = {
            "model": result["model"],
            "effort": result.get("reasoningEffort"),
            "approvalPolicy": result["approvalPolicy"],
            "sandbox": result["sandbox"].get("type"),
            "collaboration": collaboration.get("mode", "default"),
        }

    def updated(self, settings: Params) -> None:
        """``thread/settings/updated``, whoever changed them."""
        self._settings = {
            "model": settings["model"],
            "effort": settings.get("effort"),
            "approvalPolicy": settings["approvalPolicy"],
            "sandbox": settings["sandboxPolicy"].get("type"),
            "collaboration": settings["collaborationMode"]["mode"],
        }

    def offered(self, models: Sequence[object]) -> None:
        """The models of ``model/list``."""
        self._models = [model for model in map(as_mapping, models) if as_text(model.get("model"))]

    def wire(self) -> list[Json]:
        """The options in wire form, most important first (CFG-5); empty before the thread is known."""
        if not self._settings:
            return []
        options = [
            _select("mode", "Mode", "mode", self._mode(), self._mode_values()),
            _select("model", "Model", "model", self._settings["model"], self._model_values()),
        ]
        efforts = self._effort_values()
        if len(efforts) > 1:
            effort = self._effort()
            options.append(_select("reasoning_effort", "Reasoning effort", "thought_level", effort, efforts))
        values = [_value(mode, name, text) for mode, (name, text) in _COLLABORATION.items()]
        options.append(_select("collaboration_mode", "Collaboration", None, self._settings["collaboration"], values))
        return options

    def change(self, config_id: str, value: str | bool) -> Json:
        """The parameters of ``thread/settings/update`` for a choice, without the thread.

        Raises :class:`~sayagain.errors.InvalidParams` for ``configId`` or ``value`` (CFG-2).
        """
        option = next((option for option in self.wire() if option["configId"] == config_id), None)
        if option is None:
            raise InvalidParams("configId", "this session has no such option")
        if not isinstance(value, str) or value not in [entry["value"] for entry in option["options"]]:
            raise InvalidParams("value", "is none of the option's values")
        match config_id:
            case "mode":
                return dict(MODES[value]["set"]) if value in MODES else {}
            case "model":
                return self._model_change(value)
            case "reasoning_effort":
                return {"effort": value}
            case _:
                settings = {"model": self._settings["model"], "reasoning_effort": self._settings["effort"]}
                return {"collaborationMode": {"mode": value, "settings": settings}}

    def _model_change(self, model: str) -> Json:
        """An effort that the new model does not have gives way to its default."""
        change: Json = {"model": model}
        entry = self._entry(model)
        if entry is not None and self._settings["effort"] is not None:
            efforts = [effort for effort, _ in _efforts(entry)]
            if self._settings["effort"] not in efforts:
                change["effort"] = entry.get("defaultReasoningEffort")
        return change

    def _mode(self) -> str:
        mode = _SANDBOXES.get(str(self._settings["sandbox"]), _CUSTOM)
        fits = mode in MODES and MODES[mode]["set"]["approvalPolicy"] == self._settings["approvalPolicy"]
        return mode if fits else _CUSTOM

    def _mode_values(self) -> list[Json]:
        values = [_value(mode, entry["name"], entry["description"]) for mode, entry in MODES.items()]
        if self._mode() == _CUSTOM:
            values.append(_value(_CUSTOM, "Custom", "As Codex's own configuration has it"))
        return values

    def _model_values(self) -> list[Json]:
        shown = [model for model in self._models if not model.get("hidden")]
        values = [_value(m["model"], as_text(m.get("displayName")) or m["model"], m.get("description")) for m in shown]
        current = self._settings["model"]
        if all(value["value"] != current for value in values):
            values.insert(0, _value(current, current, None))
        return _unique(values)

    def _entry(self, model: str) -> Params | None:
        return next((entry for entry in self._models if entry["model"] == model), None)

    def _effort(self) -> str:
        entry = self._entry(self._settings["model"])
        return str(self._settings["effort"] or (entry or {}).get("defaultReasoningEffort"))

    def _effort_values(self) -> list[Json]:
        entry = self._entry(self._settings["model"])
        if entry is None:
            return []
        values = [_value(effort, effort.capitalize(), text) for effort, text in _efforts(entry)]
        current = self._effort()
        if all(value["value"] != current for value in values):
            values.insert(0, _value(current, current.capitalize(), None))
        return _unique(values)


def _efforts(model: Params) -> list[tuple[str, str]]:
    """The efforts that a model has, each with its description."""
    entries = map(as_mapping, as_list(model.get("supportedReasoningEfforts")))
    found = [(as_text(entry.get("reasoningEffort")), as_text(entry.get("description"))) for entry in entries]
    return [(effort, text) for effort, text in found if effort]


def _select(config_id: str, name: str, category: str | None, current: str, values: Sequence[Json]) -> Json:
    option: Json = {
        "type": "select",
        "configId": config_id,
        "name": name,
        "currentValue": current,
        "options": list(values),
    }
    return option if category is None else {**option, "category": category}


def _value(value: str, name: str, description: str | None) -> Json:
    entry: Json = {"value": value, "name": name}
    return {**entry, "description": description} if description else entry


def _unique(values: Sequence[Json]) -> list[Json]:
    return list({value["value"]: value for value in reversed(values)}.values())[::-1]
