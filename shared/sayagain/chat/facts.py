"""What holds of a session at the moment: its title, options, commands, use of the context, background work. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from sayagain.chat.spans import excerpt
from sayagain.protocol.loose import Json, as_count, as_list, as_mapping, as_text

__all__ = ["Facts"]

_COMMAND: Final = 80
"""Characters of a command's description: some are pages, for the model."""


class Facts:
    """Follows the updates; :meth:`lines` tells all of it, :meth:`take` what a user should hear of at once."""

    def __init__(self) -> None:
        self._title = ""
        self._usage = ""
        self._options: dict[str, tuple[str, str]] = {}
        """By id: the option's name, and its value as people read it."""
        self._commands: list[tuple[str, str]] = []
        self._background: Counter[str] = Counter()

    def begin(self, offers: Json) -> None:
        """What the answer to the session's new, resume or fork has."""
        self._set_options(offers)
        self._set_commands(offers)

    def take(self, update: Json) -> Iterator[str]:
        """An update of the session itself, not of a child."""
        match update.get("sessionUpdate"):
            case "session_info_update":
                if "title" in update:
                    self._title = as_text(update["title"])
            case "usage_update":
                self._usage = _usage(update)
            case "available_commands_update":
                self._set_commands(update)
            case "config_option_update":
                before = dict(self._options)
                self._set_options(update)
                for option_id, (name, value) in self._options.items():
                    if before.get(option_id, (name, value)) != (name, value):
                        yield f"{name}: {value}"
            case "state_update" if isinstance(update.get("background"), list):
                yield from self._set_background(update)
            case _:
                pass

    def lines(self) -> Iterator[str]:
        """All of it."""
        if self._title:
            yield f"Title: {self._title}"
        if self._usage:
            yield f"Context: {self._usage}"
        for name, value in self._options.values():
            yield f"{name}: {value}"
        if self._background:
            yield f"In the background: {_told(self._background)}"
        for name, description in self._commands:
            yield f"/{name}" + (f"  {excerpt(description, _COMMAND)}" if description else "")

    def _set_options(self, source: Json) -> None:
        options = [as_mapping(option) for option in as_list(source.get("configOptions"))]
        if options:
            self._options = {
                as_text(option.get("configId")): (as_text(option.get("name")), _value(option)) for option in options
            }

    def _set_commands(self, source: Json) -> None:
        if isinstance(source.get("availableCommands"), list):
            found = [as_mapping(command) for command in as_list(source["availableCommands"])]
            self._commands = [(as_text(each.get("name")), as_text(each.get("description"))) for each in found]

    def _set_background(self, update: Json) -> Iterator[str]:
        work = [as_mapping(each) for each in as_list(update["background"])]
        found = Counter(as_text(each.get("type")).replace("_", " ") or "piece of work" for each in work)
        before, self._background = self._background, found
        if found and found != before:
            yield f"In the background: {_told(found)}"
        elif before and not found:
            yield "Nothing runs in the background any more."


def _told(background: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in background.items())


def _usage(update: Json) -> str:
    used, size = as_count(update.get("used")), as_count(update.get("size"))
    if used is None or size is None:
        return ""
    cost = as_mapping(update.get("cost"))
    amount = cost.get("amount")
    price = f", {amount:.4f} {as_text(cost.get('currency'))}" if isinstance(amount, int | float) else ""
    return f"{used:,} of {size:,} tokens{price}"


def _value(option: Json) -> str:
    """The value's name, which may stand in a group of values."""
    current = option.get("currentValue")
    if isinstance(current, bool):
        return "on" if current else "off"
    entries = [as_mapping(entry) for entry in as_list(option.get("options"))]
    entries += [as_mapping(each) for entry in entries for each in as_list(entry.get("options"))]
    name = next((as_text(entry.get("name")) for entry in entries if entry.get("value") == current), "")
    return name or as_text(current)
