"""The root thread's turns, told by its notifications: what became of a prompt, and the foreground state. Pure.

What Codex says of one prompt, in order (measured, codex 0.163)::

    turn/start's response -> thread/status/changed active -> turn/started -> item/started (userMessage)
    -> item/completed (userMessage) -> ... -> thread/status/changed idle -> turn/completed

The completed item that bears our id alone proves insertion: a SIGKILL at anything before it can lose the message. A
turn ends at ``turn/completed``, which is the last word on a message that it has not stored, too. So does what failed
before it was a turn (:mod:`sayagain_codex.endings`); there the response may come last. Turns that Codex starts by
itself are told in the same way. A ``turn/start`` that meets a running turn is taken as a steer, and a steer can vanish
with its turn, so such a message has to be given again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sayagain.errors import AuthRequired, PromptRefused, RequestCancelled, RuntimeFault, SayagainError, to_wire
from sayagain.protocol.loose import as_mapping, as_text
from sayagain.runtime.events import Foreground, Inserted, Rejected, RuntimeEvent

__all__ = ["Lost", "Turns"]

Params = Mapping[str, Any]

_WAITING: Final = frozenset({"waitingOnApproval", "waitingOnUserInput"})
"""The flags of an active thread that say that it waits for the user."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The submitted message was taken as a steer and vanished with its turn: it is given again."""

    message_id: str


class Turns:
    """Fed with every notification of the root thread, in order. ``submitted`` is the message not known to be stored.

    ``background`` gives what runs on while the foreground is idle, ``usage`` the tokens of the turn.
    """

    def __init__(
        self,
        session_id: str,
        *,
        background: Callable[[], Sequence[Params]],
        usage: Callable[[], Params | None],
    ) -> None:
        self._session_id = session_id
        self._background = background
        self._usage = usage
        self._told: Sequence[Params] = []
        self._active = False
        self._cancelling = False
        self._steered = False
        self._ours: str | None = None
        # An end without a beginning that came before anybody knew whose it is.
        self._early: Params | None = None
        self._refusal: str | None = None
        self._confirming = False
        self._judged = False
        self.submitted: str | None = None
        self.turn_id: str | None = None
        """The running turn, as ``turn/interrupt`` names it."""
        self._suspect = True

    @property
    def active(self) -> bool:
        """Whether foreground work is under way."""
        return self._active

    @property
    def awaited(self) -> str | None:
        """The turn that runs, or else the one that was announced for the last message."""
        return self.turn_id or self._ours

    @property
    def suspect(self) -> bool:
        """Whether the last turn may be the ghost of a prompt: so after a thread was loaded, and after a lost prompt."""
        return self._suspect

    def checked(self) -> None:
        """The last turn is no ghost, or is one no longer."""
        self._suspect = False

    @property
    def steered(self) -> bool:
        """Whether the submitted message was put into a turn that is not its own."""
        return self._steered

    @property
    def cancelling(self) -> bool:
        """Whether the work that is under way was told to stop."""
        return self._cancelling

    # Prompts.

    def submit(self, message_id: str) -> None:
        """A message is about to be written."""
        assert self.submitted is None
        self.submitted = message_id
        self._ours = None
        self._early = None
        self._steered = False
        self._refusal = None
        self._confirming = False
        self._judged = False

    def take_back(self, message_id: str) -> None:
        """The message was withdrawn before it was written."""
        if self.submitted == message_id:
            self.submitted = None

    def taken(self, result: Params) -> Sequence[RuntimeEvent | Lost]:
        """The response to ``turn/start``, which comes before anything of its turn; what is known of that already."""
        turn_id = _announced(result)
        self._steered = self._active and turn_id == self.turn_id
        self._ours = turn_id
        early, self._early = self._early, None
        return list(self._completed(early)) if early is not None and early.get("id") == turn_id else []

    @property
    def judged(self) -> bool:
        """Whether the turn of the message that is being looked up is over."""
        return self._judged

    def confirming(self) -> None:
        """Codex says that it stored the message, which is being looked up: the end of its turn decides nothing."""
        self._confirming = True

    def interrupt(self) -> None:
        """The client stops the work: the end that comes is its doing (CAN-2), unless it came already (CAN-7)."""
        self._cancelling = self._active or self.submitted is not None

    def stored(self) -> Iterator[RuntimeEvent]:
        """The submitted message is stored."""
        if self.submitted is not None:
            message_id, self.submitted = self.submitted, None
            yield Inserted(message_id)
            yield from self._settled()

    def began(self) -> Iterator[RuntimeEvent]:
        """The message's turn began, though nothing said so before the process died."""
        if not self._active:
            yield from self._work("running")

    def local(self, result: Params, *, works: bool) -> Iterator[RuntimeEvent]:
        """The submitted message was a local command, and is done; ``works`` says that a turn follows (PRM-7)."""
        if self.submitted is not None:
            message_id, self.submitted = self.submitted, None
            self._ours = _announced(result)
            early, self._early = self._early, None
            yield from self.began()
            yield Inserted(message_id)
            if not works:
                yield from self._end("end_turn", None)
            elif early is not None and self._ours in (None, early.get("id")):
                self._ours = None
                yield from self._end(*_ending(early, cancelling=self._cancelling))

    def refused(self, error: SayagainError) -> Iterator[RuntimeEvent]:
        """The submitted message is not stored and never will be."""
        if self.submitted is not None:
            message_id, self.submitted = self.submitted, None
            yield Rejected(message_id, error)
            yield from self._settled()

    def _settled(self) -> Iterator[RuntimeEvent]:
        # Its turn is over already when the outcome came late: then the next message may come.
        if not self._active:
            self._cancelling = False
            yield self._state("idle")

    # Notifications.

    def is_proof(self, method: str, params: Params) -> bool:
        """Whether this says that the submitted message is stored (of a paginated thread)."""
        item = params.get("item", {})
        return (
            method == "item/completed"
            and self.submitted is not None
            and item.get("type") == "userMessage"
            and item.get("clientId") == self.submitted
        )

    def notification(self, method: str, params: Params) -> Iterator[RuntimeEvent | Lost]:
        """What a notification says of turns, besides :meth:`is_proof`."""
        match method:
            case "thread/status/changed":
                status = params["status"]
                if status.get("type") == "active":
                    yield from self._work("requires_action" if _WAITING & set(status["activeFlags"]) else "running")
            case "turn/started":
                self.turn_id = params["turn"]["id"]
                if not self._active:
                    yield from self._work("running")
            case "hook/completed":
                if params["run"].get("status") == "blocked":
                    words = [str(entry.get("text", "")) for entry in params["run"].get("entries") or ()]
                    self._refusal = " ".join(words).strip() or "A hook blocked the prompt"
            case "turn/completed":
                yield from self._completed(params["turn"])
            case "error" if params.get("willRetry") is not True:
                yield from self._failed(params)
            case _:
                pass

    def again(self, *, anew: bool = False) -> Iterator[Foreground]:
        """The idle state once more, when what runs in the background is not what was told; or in any case (UPD-8)."""
        if not self._active and self.submitted is None and (anew or self._background() != self._told):
            yield self._state("idle")

    def gone(self) -> None:
        """The process is gone; :meth:`died` follows."""
        self.turn_id = None
        self._ours = None
        self._suspect = True

    def given_up(self, error: SayagainError) -> Iterator[RuntimeEvent]:
        """Nobody waits for the end of the work any more."""
        if self._active:
            yield from self._end("error", to_wire(error))

    def died(self, error: RuntimeFault) -> Iterator[RuntimeEvent]:
        """The work ended with the process. Call after the submitted message is settled, and before the next one."""
        if self._active and self._cancelling:
            yield from self._end("cancelled", None)
        elif self._active:
            yield from self._end("error", to_wire(error))

    def _work(self, state: str) -> Iterator[RuntimeEvent]:
        self._active = True
        yield self._state("requires_action" if state == "requires_action" else "running")

    def _completed(self, turn: Params) -> Iterator[RuntimeEvent | Lost]:
        turn_id = turn.get("id")
        # A review begins under another id than it ends (measured); what ends without a beginning may be anything's.
        ends = self._active and (self.turn_id is not None or self._ours in (None, turn_id))
        if self._ours is None and self.submitted is not None and not self._active:
            self._early = turn
        verdict = self._verdict(turn) if self.submitted is not None and self._ours == turn_id else None
        if self._confirming:
            self._judged, verdict = verdict is not None, None
        if isinstance(verdict, SayagainError):
            yield from self.refused(verdict)
        if ends:
            usage = self._usage() if self.turn_id is not None else None
            self.turn_id = None
            self._ours = None if self._ours == turn_id else self._ours
            yield from self._end(*_ending(turn, cancelling=self._cancelling), usage)
        if isinstance(verdict, Lost):
            yield verdict

    def _failed(self, params: Params) -> Iterator[RuntimeEvent]:
        """An error of the submitted message's own, while another turn runs, that it was to become a part of."""
        turn_id = params.get("turnId")
        if self.submitted is not None and self._ours == turn_id and self.turn_id not in (None, turn_id):
            self._suspect = True
            yield from self.refused(self._reason(params))

    def _verdict(self, turn: Params) -> SayagainError | Lost:
        """What the end of its turn means for the submitted message, which nothing has proved."""
        assert self.submitted is not None
        self._suspect = True
        self._ours = None
        return Lost(self.submitted) if self._steered and not self._cancelling else self._reason(turn)

    def _reason(self, turn: Params) -> SayagainError:
        if self._cancelling:
            return RequestCancelled("the session's work was cancelled")
        error = as_mapping(turn.get("error"))
        return PromptRefused(
            str(self._refusal or error.get("message") or "Codex ended the turn without storing the message")
        )

    def _end(self, stop_reason: str, error: Params | None, usage: Params | None = None) -> Iterator[RuntimeEvent]:
        self._active = False
        self._cancelling = False
        yield self._state("idle", stop_reason, error, usage)

    def _state(
        self, state: Any, stop_reason: str | None = None, error: Params | None = None, usage: Params | None = None
    ) -> Foreground:
        # While the foreground works, what it started is its own.
        self._told = self._background()
        return Foreground(self._session_id, state, stop_reason, error, usage, self._told)


def _announced(result: Params) -> str | None:
    """The turn that an answer announces; that to a compaction announces none (measured)."""
    return as_text(as_mapping(result.get("turn")).get("id")) or None


def _ending(turn: Params, *, cancelling: bool) -> tuple[str, Params | None]:
    status, error = turn.get("status"), turn.get("error")
    if status == "interrupted" or (cancelling and status != "completed"):
        # Without our doing: the user stopped it through Codex, by a rejected approval that says stop.
        return "cancelled", None
    if status == "failed" or error:
        return "error", to_wire(_failure(error or {}))
    return "end_turn", None


def _failure(error: Params) -> SayagainError:
    text = str(error.get("message") or "Codex reported an error")
    return AuthRequired(text) if _is_auth(error.get("codexErrorInfo")) else RuntimeFault(text)


def _is_auth(info: object) -> bool:
    """A missing login is told as the HTTP status of a failed connection (measured)."""
    details = as_mapping(info)
    return info == "unauthorized" or any(as_mapping(value).get("httpStatusCode") == 401 for value in details.values())
