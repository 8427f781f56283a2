"""What an agent asks the user, as a talk of lines: permissions, forms, pages to visit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import anyio

from sayagain.chat.forms import Form, Unfit
from sayagain.chat.spans import clean
from sayagain.chat.terminal import Screen
from sayagain.client import PermissionRequest, Update
from sayagain.errors import InvalidParams
from sayagain.protocol.loose import as_text

__all__ = ["CAPABILITIES", "Elicitation", "PermissionQuestion", "Question", "elicitation"]

CAPABILITIES: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
"""What a chat with a user at it can do."""


class Question(Protocol):
    """One that is being asked. :meth:`take` gets the user's lines until :attr:`done`."""

    done: anyio.Event

    about: Update | None
    """What the question tells of the session, to be shown like an update before it (PER-4)."""

    def show(self, screen: Screen) -> None:
        """Ask; again after another question was on the screen."""
        ...

    def take(self, line: str, screen: Screen) -> None:
        """The next line of the user's."""
        ...

    def cancel(self) -> bool:
        """The user does not want to be asked; false when only stopping the work ends the question."""
        ...


class PermissionQuestion:
    """A permission that the agent waits for; ``option`` is the id of the user's choice."""

    def __init__(self, request: PermissionRequest) -> None:
        self._request = request
        self.done = anyio.Event()
        self.option: str | None = None
        call: object = request.subject.get("toolCall")
        self.about = (
            Update(request.session_id, {**cast("dict[str, Any]", call), "sessionUpdate": "tool_call_update"})
            if isinstance(call, dict)
            else None
        )

    def show(self, screen: Screen) -> None:
        """The title, what it is about, the options."""
        screen.line(clean(self._request.title), "ask")
        if self._request.description:
            screen.line(clean(self._request.description))
        command = self._request.subject.get("command")
        if isinstance(command, str):
            screen.line(f"  $ {clean(command)}")
        for number, option in enumerate(self._request.options, 1):
            screen.line(f"  {number}. {clean(str(option.get('name')))}")
        screen.line("Which one? (number; anything else is no)", "ask")

    def take(self, line: str, screen: Screen) -> None:
        """The number of an option."""
        text = line.strip()
        if text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= len(self._request.options):
            self.option = str(self._request.options[int(text[:9]) - 1].get("optionId"))
        else:
            screen.line("Not approved.", "note")
        self.done.set()

    def cancel(self) -> bool:
        """A permission is for work that runs: Ctrl-C stops that."""
        return False


class Elicitation:
    """A form or a page; ``result`` is the answer to the agent."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.done = anyio.Event()
        self.about: Update | None = None
        self.result: Mapping[str, Any] = {"action": "cancel"}

    def show(self, screen: Screen) -> None:
        """What it is about."""
        screen.line(clean(self.message), "ask")

    def cancel(self) -> bool:
        """Neither yes nor no (ELI-5)."""
        self.done.set()
        return True

    def take(self, line: str, screen: Screen) -> None:
        """A yes or a no."""
        word = line.strip().casefold()
        if word in ("y", "yes"):
            self._accept({})
        elif word in ("", "n", "no"):
            self._decline(screen)
        else:
            screen.line("Please type y or n.", "note")

    def _accept(self, content: Mapping[str, Any]) -> None:
        self.result = {"action": "accept", **content}
        self.done.set()

    def _decline(self, screen: Screen) -> None:
        screen.line("Declined.", "note")
        self.result = {"action": "decline"}
        self.done.set()


class _FormQuestion(Elicitation):
    def __init__(self, message: str, form: Form) -> None:
        super().__init__(message)
        self._form = form

    def show(self, screen: Screen) -> None:
        super().show(screen)
        for text in (self._form.title, self._form.description):
            if text:
                screen.line(clean(text))
        if self._form.is_empty:
            screen.line("Yes or no? (y or n)", "ask")
        elif self._form.declined:
            screen.line("It asks for what this chat cannot show. Declined with Enter.", "note")
        else:
            screen.line("Fields with * are needed. Ctrl-C cancels.", "note")
            self._show_field(screen)

    def take(self, line: str, screen: Screen) -> None:
        if self._form.is_empty:
            super().take(line, screen)
            return
        if self._form.field is not None:
            try:
                self._form.take(line)
            except Unfit as unfit:
                screen.line(clean(str(unfit)), "note")
        if self._form.declined:
            self._decline(screen)
        elif self._form.field is None:
            self._accept({"content": self._form.values})
        else:
            self._show_field(screen)

    def _accept(self, content: Mapping[str, Any]) -> None:
        super()._accept({"content": {}, **content})

    def _show_field(self, screen: Screen) -> None:
        assert self._form.field is not None
        first, *rest = self._form.field.lines()
        screen.line(clean(first), "ask")
        for line in rest:
            screen.line(clean(line))


class _PageQuestion(Elicitation):
    def __init__(self, message: str, url: str) -> None:
        super().__init__(message)
        self._url = url

    def show(self, screen: Screen) -> None:
        super().show(screen)
        # The whole of it, and nothing is opened by itself: the user has to see where it leads (ELI-6).
        screen.line(f"  {clean(self._url)}")
        screen.line("Will you open this page? (y or n)", "ask")


def elicitation(params: Mapping[str, Any]) -> Elicitation:
    """The question for an ``elicitation/create``. Raises :class:`~sayagain.errors.InvalidParams`."""
    message = as_text(params.get("message")) or "The agent asks"
    match params.get("mode"):
        case "form":
            try:
                return _FormQuestion(message, Form(params.get("requestedSchema")))
            except ValueError as error:
                raise InvalidParams("requestedSchema", str(error)) from error
        case "url":
            if not as_text(params.get("url")):
                raise InvalidParams("url", "is needed")
            return _PageQuestion(message, as_text(params["url"]))
        case _:
            raise InvalidParams("mode", "is none that this client has")
