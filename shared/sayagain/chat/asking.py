"""The questions that wait for the user: one at a time, in the order in which the agent asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sayagain.chat.questions import CAPABILITIES, PermissionQuestion, Question, elicitation
from sayagain.chat.terminal import Screen
from sayagain.client import PermissionRequest, Update

__all__ = ["Asking"]


class Asking:
    """Handlers for the agent's requests.

    ``begin`` is called before a question is shown, with what it tells of the session; ``settled`` after the last one;
    ``note`` prints a line in a style.

    Without anybody ``present``, nothing is approved and nothing filled in.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        present: bool,
        begin: Callable[[Update | None], None],
        settled: Callable[[], None],
        note: Callable[[str, str], None],
    ) -> None:
        self._screen = screen
        self._present = present
        self._begin = begin
        self._note = note
        self._settled = settled
        self._questions: deque[Question] = deque()

    @property
    def is_open(self) -> bool:
        """Whether the next line of input is an answer."""
        return bool(self._questions)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Of the client: in a pipe there is nobody who could fill in a form."""
        return CAPABILITIES if self._present else {}

    async def permission(self, request: PermissionRequest) -> str | None:
        """The id of the option that the user chose."""
        if not self._present:
            self._note(f"Not approved, nobody can be asked: {request.title}", "error")
            return None
        question = PermissionQuestion(request)
        await self._put(question)
        return question.option

    async def elicitation(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to an ``elicitation/create``."""
        question = elicitation(params)
        if not self._present:
            self._note(f"Declined, nobody can be asked: {question.message}", "error")
            return {"action": "decline"}
        await self._put(question)
        return question.result

    async def completed(self, params: Mapping[str, Any]) -> None:
        """An ``elicitation/complete``: the user has done what there was to do on a page."""
        self._note("What there was to do on the page is done.", "note")

    def take(self, line: str) -> None:
        """A line of input, for the question that stands there."""
        self._questions[0].take(line, self._screen)
        self._next()

    def cancel(self) -> bool:
        """The user wants none of it; false when there is no question, or only stopping the work ends it."""
        if not self._questions or not self._questions[0].cancel():
            return False
        self._note("Cancelled.", "note")
        self._next()
        return True

    async def _put(self, question: Question) -> None:
        self._questions.append(question)
        if len(self._questions) == 1:
            self._show()
        try:
            await question.done.wait()
        finally:
            # One that was answered left with its last line: the next line is for what is asked next.
            if question in self._questions:
                stood_there = self._questions[0] is question
                self._questions.remove(question)
                if stood_there:
                    self._note("That is no longer asked.", "note")
                    self._show()

    def _next(self) -> None:
        if self._questions[0].done.is_set():
            self._questions.popleft()
            self._show()

    def _show(self) -> None:
        if self._questions:
            self._begin(self._questions[0].about)
            self._questions[0].show(self._screen)
        else:
            self._settled()
