"""The root session's turns, told by the CLI's frames: what became of a prompt, and the foreground state. Pure.

What the CLI says of one prompt, in order (measured, claude 2.1.332)::

    session_state_changed running -> command_lifecycle queued -> started -> transcript_mirror (the stored row)
    -> system/init -> ... -> result -> command_lifecycle completed -> session_state_changed idle

The mirrored row alone proves insertion: the echo of a prompt comes before it, and for prompts that are never stored.
A turn ends at its ``result``. The CLI's own ``idle`` comes later or, while a background agent lives, much later; it
ends a turn only where no result came. Turns that the CLI starts by itself (a background agent came back) have no
prompt and are told in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from sayagain.errors import AuthRequired, PromptRefused, RuntimeFault, SayagainError, to_wire
from sayagain.runtime.events import Foreground, Inserted, Rejected, RuntimeEvent
from sayagain_claude.transcripts.row import row_message_ids

__all__ = ["Turns"]

Outcome = Literal["unknown", "started", "stored"]

_STOP_REASONS: Final[Mapping[str, str]] = {
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "model_context_window_exceeded": "max_tokens",
}
"""The API's stop reasons that ACP has a word for; all others end a turn well."""

_SUBTYPES: Final[Mapping[str, str]] = {"error_max_turns": "max_turn_requests"}


class Turns:
    """Fed with every frame of the CLI, in order. ``submitted`` is the one message that is not known to be stored."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._active = False
        self._cancelling = False
        self._started = False
        self._own_turn = False
        self._refusal: str | None = None
        self.submitted: str | None = None

    @property
    def active(self) -> bool:
        """Whether foreground work is under way."""
        return self._active

    @property
    def started(self) -> bool:
        """Whether the CLI has taken the submitted message up: what it reports as ended may be that message's turn."""
        return self._started

    @property
    def cancelling(self) -> bool:
        """Whether the work that is under way was told to stop."""
        return self._cancelling

    @property
    def blocked(self) -> bool:
        """Whether the CLI said that the submitted message is not kept: no row of it comes any more."""
        return self._refusal is not None

    @property
    def own_turn(self) -> bool:
        """Whether the submitted message began its turn; rows of one that a running turn took up lag behind."""
        return self._own_turn

    def submit(self, message_id: str) -> None:
        """A message is about to be written."""
        assert self.submitted is None
        self.submitted = message_id
        self._own_turn = False
        self._started = False
        self._refusal = None

    def take_back(self, message_id: str) -> None:
        """The CLI gave the message back unstored."""
        if self.submitted == message_id:
            self.submitted = None

    def interrupt(self) -> None:
        """The client stops the work: the end that comes is its doing (CAN-2), unless it came already (CAN-7)."""
        self._cancelling = self._active or self.submitted is not None

    def frame(self, frame: Mapping[str, Any]) -> Iterator[RuntimeEvent]:
        """What a frame says of turns and prompts."""
        match frame.get("type"):
            case "transcript_mirror":
                if self.submitted is not None and any(self._is_submitted(row) for row in frame.get("entries") or ()):
                    yield from self.stored()
            case "command_lifecycle":
                if frame.get("command_uuid") == self.submitted:
                    self._started = self._started or frame.get("state") == "started"
            case "system":
                yield from self._system(frame)
            case "result":
                yield from self._result(frame)
            case _:
                pass

    def over_without_row(self, frame: Mapping[str, Any]) -> bool:
        """Whether this frame is the last word on a submitted message of which no row was seen.

        Rows of some kinds lag behind by a tenth of a second, so the caller looks into the transcript then.
        """
        if self.submitted is None:
            return False
        if frame.get("type") == "command_lifecycle" and frame.get("command_uuid") == self.submitted:
            # It is cancelled out of the queue before it was ever started.
            return frame.get("state") == "cancelled" or (self._started and frame.get("state") == "completed")
        return self._started and frame.get("subtype") == "session_state_changed" and frame.get("state") == "idle"

    def runs_without_row(self, frame: Mapping[str, Any]) -> bool:
        """Whether this frame says that the model is being asked about a message of which no row was seen.

        Rows are written and mirrored before that (measured, with ``CLAUDE_CODE_EAGER_FLUSH``), but when they could not
        be written the turn goes on all the same. A prompt that a hook blocks asks no model.
        """
        requesting = frame.get("subtype") == "status" and frame.get("status") == "requesting"
        return requesting and not self.blocked and self._names_submitted(frame)

    def stored(self) -> Iterator[RuntimeEvent]:
        """The submitted message is stored."""
        if self.submitted is not None:
            message_id, self.submitted = self.submitted, None
            yield Inserted(message_id)
            yield from self._settled()

    def refused(self, error: SayagainError | None = None) -> Iterator[RuntimeEvent]:
        """The submitted message is not stored and never will be."""
        if self.submitted is not None:
            message_id, self.submitted = self.submitted, None
            yield Rejected(message_id, error or PromptRefused(self._refusal or ""))
            yield from self._settled()

    def died(self, error: RuntimeFault) -> Iterator[RuntimeEvent]:
        """The process is gone. Call after :meth:`stored` or :meth:`refused` has settled the submitted message."""
        if self._active and self._cancelling:
            yield from self._end("cancelled", None)
        elif self._active:
            yield from self._end("error", to_wire(error))

    def _settled(self) -> Iterator[RuntimeEvent]:
        # Its turn is over already when the outcome came late: then the next message may come.
        if not self._active:
            yield Foreground(self._session_id, "idle")

    def _names_submitted(self, frame: Mapping[str, Any]) -> bool:
        ids: object = frame.get("user_message_uuids")
        return self.submitted is not None and isinstance(ids, list) and self.submitted in ids

    def _is_submitted(self, row: Mapping[str, Any]) -> bool:
        return self.submitted in row_message_ids(row)

    def _system(self, frame: Mapping[str, Any]) -> Iterator[RuntimeEvent]:
        subtype = frame.get("subtype")
        if subtype == "init":
            self._own_turn = self._own_turn or self._names_submitted(frame)
        if subtype == "session_state_changed":
            yield from self._state(frame.get("state"))
        elif subtype == "init" and not self._active:
            # Every turn has one. While a background agent lives, the CLI's own state never leaves "running" between
            # the turn that started the agent and the one that its end starts (measured).
            yield from self._state("running")
        elif subtype == "informational":
            outcome = frame.get("prompt_submit_outcome")
            if isinstance(outcome, Mapping) and not outcome.get("prompt_kept", True):  # pyright: ignore
                content = frame.get("content")
                # The CLI repeats the whole prompt behind the hook's words.
                words = content.partition("\n\nOriginal prompt:")[0].strip() if isinstance(content, str) else ""
                self._refusal = words or "A hook blocked the prompt"

    def _state(self, state: object) -> Iterator[RuntimeEvent]:
        if state == "idle":
            # Between a result and the next prompt's start this is the late word on the turn that has ended.
            if self._active and (self.submitted is None or self._started):
                yield from self._end("cancelled" if self._cancelling else None, None)
        elif state == "running":
            self._active = True
            yield Foreground(self._session_id, "running")
        elif state == "requires_action":
            self._active = True
            yield Foreground(self._session_id, "requires_action")

    def _result(self, frame: Mapping[str, Any]) -> Iterator[RuntimeEvent]:
        if not self._active:
            return
        stop_reason, error = self._ending(frame)
        yield from self._end(stop_reason, error, _usage(frame.get("usage")))

    def _end(
        self, stop_reason: str | None, error: Mapping[str, Any] | None, usage: Mapping[str, Any] | None = None
    ) -> Iterator[RuntimeEvent]:
        self._active = False
        self._cancelling = False
        yield Foreground(self._session_id, "idle", stop_reason=stop_reason, error=error, usage=usage)

    def _ending(self, frame: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None]:
        subtype = frame.get("subtype")
        aborted = str(frame.get("terminal_reason", "")).startswith("aborted_")
        if self._cancelling and (aborted or frame.get("is_error")):
            return "cancelled", None
        if aborted:
            # Stopped by the user through the runtime: a rejected permission that says stop.
            return "cancelled", None
        if reason := _SUBTYPES.get(str(subtype)):
            return reason, None
        if frame.get("is_error"):
            return "error", to_wire(_failure(frame))
        return _STOP_REASONS.get(str(frame.get("stop_reason")), "end_turn"), None


def _failure(frame: Mapping[str, Any]) -> SayagainError:
    text = frame.get("result")
    if not isinstance(text, str) or not text:
        errors = frame.get("errors")
        text = str(errors[0]) if isinstance(errors, list) and errors else "Claude Code reported an error"  # pyright: ignore
    if frame.get("api_error_status") in (401, 403) or "/login" in text:
        return AuthRequired(text)
    return RuntimeFault(text)


def _usage(usage: object) -> Mapping[str, Any] | None:
    """The turn's tokens (schema ``Usage``); ``None`` for a turn that asked no model."""
    if not isinstance(usage, Mapping):
        return None
    counts: dict[str, int] = {}
    for name, field in (
        ("inputTokens", "input_tokens"),
        ("outputTokens", "output_tokens"),
        ("cachedReadTokens", "cache_read_input_tokens"),
        ("cachedWriteTokens", "cache_creation_input_tokens"),
    ):
        value: object = usage.get(field)  # pyright: ignore
        counts[name] = value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
    total = sum(counts.values())
    return {"totalTokens": total, **counts} if total else None
