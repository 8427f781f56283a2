"""The prompt table: what became of every message of a session. A pure state machine, no I/O (design section 4).

One table per session. A message is named by its id, which a key derives (KEY-11), so a retry names the same message,
on whichever connection it comes. The reservation is made by :meth:`PromptTable.arrive`, which the connection calls
before its first ``await``: two equal requests in one write can't both pass.

Prompts are held *here*, never in the runtime's queue, and the runtime has at most one unstored message: both runtimes
merge, fold, steer or lose what is queued in them (measured). That also makes a withdrawal certain.

An error says that nothing was inserted (KEY-4), so it is never given while nobody knows. A message that its sender
takes back before the history was read, or whose runtime ended without a word about it, is *in doubt*: nobody goes on
with it, and the next read of the history tells its answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, TypeVar, cast

from sayagain.errors import InvalidParams, PromptRefused, RequestCancelled, SayagainError

__all__ = ["MAX_UNSTORED", "TRANSITIONS", "Answer", "Event", "Prompt", "PromptTable", "State"]

W = TypeVar("W")

MAX_UNSTORED: Final = 256
"""Most prompts that wait in one session. What waits in an agent must be bounded (invariant I11); no editor queues
more than a handful, so this is met by a runaway client alone."""


class State(Enum):
    """Where a message stands. ``UNKNOWN`` messages are not kept: theirs is the absence of an entry."""

    UNKNOWN = "never seen, or withdrawn, or refused: its key is unused"
    CHECKING = "reserved; the stored history was not read yet"
    HELD = "waits here for the session to be idle"
    SUBMITTED = "given to the runtime, not known to be stored"
    DOUBTED = "nobody goes on with it; the history tells whether it is stored"
    INSERTED = "stored by the runtime"


class Event(Enum):
    """What can happen to a message."""

    ARRIVE = "a prompt came"
    FOUND = "the history has it"
    ABSENT = "the history does not have it"
    SUBMIT = "it goes to the runtime"
    STORE = "the runtime stored it"
    REFUSE = "the runtime, or a failed read, turned it away: nothing is stored"
    WITHDRAW = "its sender, or the session's end, took it back"
    DOUBT = "the runtime ended or failed, and nobody could tell whether it was stored"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.UNKNOWN, Event.ARRIVE): State.CHECKING,
    (State.CHECKING, Event.FOUND): State.INSERTED,
    (State.CHECKING, Event.ABSENT): State.HELD,
    (State.CHECKING, Event.REFUSE): State.UNKNOWN,
    (State.CHECKING, Event.WITHDRAW): State.DOUBTED,
    (State.HELD, Event.SUBMIT): State.SUBMITTED,
    (State.HELD, Event.REFUSE): State.UNKNOWN,
    (State.HELD, Event.WITHDRAW): State.UNKNOWN,
    (State.SUBMITTED, Event.STORE): State.INSERTED,
    (State.SUBMITTED, Event.REFUSE): State.UNKNOWN,
    (State.SUBMITTED, Event.WITHDRAW): State.UNKNOWN,
    (State.SUBMITTED, Event.DOUBT): State.DOUBTED,
    (State.DOUBTED, Event.ARRIVE): State.CHECKING,
    (State.DOUBTED, Event.FOUND): State.INSERTED,
    (State.DOUBTED, Event.ABSENT): State.UNKNOWN,
    (State.DOUBTED, Event.REFUSE): State.UNKNOWN,
    (State.DOUBTED, Event.WITHDRAW): State.DOUBTED,
}

_UNREAD: Final = frozenset({State.CHECKING, State.DOUBTED})
"""States that the next read of the history ends."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[W]):
    """One request to be answered now: with ``message_id``, or with ``error`` and nothing inserted."""

    waiter: W
    message_id: str
    error: SayagainError | None = None


@dataclass(slots=True)
class Prompt(Generic[W]):
    """A message that is not known to be stored, and every request that waits for it.

    ``doubted`` are requests that nobody goes on with, each with its error, should the message not be stored. A retry
    that comes meanwhile stands in ``waiters`` and is served as a new one then.
    """

    message_id: str
    content: Sequence[Mapping[str, Any]]
    digest: bytes
    state: State = State.CHECKING
    waiters: list[W] = field(default_factory=list[W])
    doubted: list[tuple[W, SayagainError]] = field(default_factory=list[tuple[W, SayagainError]])
    given: bool = False
    """Whether the runtime had it, so that what is found is this prompt and no other."""


class PromptTable(Generic[W]):
    """All messages of one session. ``W`` is whatever the caller answers requests by.

    ``known`` are the ids of all stored messages; ``None`` while nobody has read them. Keys themselves never get here.
    """

    def __init__(self, known: Iterable[str] | None = None) -> None:
        self._known: set[str] | None = None if known is None else set(known)
        # What was read without owning the session: what is there is stored, what is not there may be all the same.
        self._seen: Set[str] = frozenset()
        # Of messages that were stored while this process watched; ids that only the history knows have no digest,
        # and their retries are taken at their word (KEY-5).
        self._digests: dict[str, bytes] = {}
        self._prompts: dict[str, Prompt[W]] = {}
        self._reading = 0
        self._working = False
        # A message was given to the runtime, and the end of its work was not reported.
        self._given = False

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._prompts)

    def state(self, message_id: str) -> State:
        """Where the message stands."""
        if prompt := self._prompts.get(message_id):
            return prompt.state
        if message_id in self._digests or message_id in (self._seen if self._known is None else self._known):
            return State.INSERTED
        return State.UNKNOWN

    # What requests do.

    def arrive(
        self, waiter: W, message_id: str, content: Sequence[Mapping[str, Any]], *, keyed: bool
    ) -> list[Answer[W]]:
        """A prompt request came in. Returns its answer when that is known at once; else it waits.

        Raises :class:`InvalidParams` when the message's key came with another prompt before (KEY-5), and
        :class:`PromptRefused` when too many wait.
        """
        digest = _digest(content)
        if prompt := self._prompts.get(message_id):
            if prompt.digest != digest:
                raise _reused()
            if prompt.state is State.DOUBTED:
                self._move(prompt, Event.ARRIVE)
            prompt.waiters.append(waiter)
            return []
        if self.state(message_id) is State.INSERTED:
            if self._digests.get(message_id, digest) != digest:
                raise _reused()
            return [Answer(waiter, message_id)]
        # A fresh id can't be in any history. Any other may be stored until the history was read, so then it is known
        # whether too many wait.
        absent = self._known is not None or not keyed
        if absent and len(self._prompts) >= MAX_UNSTORED:
            raise _too_many()
        prompt = Prompt[W](message_id, content, digest, waiters=[waiter])
        self._prompts[message_id] = prompt
        if absent:
            self._move(prompt, Event.ABSENT)
        return []

    def cancel(self, waiter: W) -> tuple[list[Answer[W]], str | None]:
        """``$/cancel_request`` for one of a message's requests (KEY-6, CAN-4).

        Returns the answers, and the id of a message that the runtime has to be asked to give back; when it does,
        :meth:`withdrawn` follows, else the message gets stored and all its requests get its id. A message that may be
        stored already is answered when the history was read.
        """
        for prompt in self._prompts.values():
            if waiter in prompt.waiters:
                if prompt.state is State.SUBMITTED:
                    return [], prompt.message_id
                return self._take_back(prompt, RequestCancelled()), None
        return [], None

    def cancel_all(self, reason: str) -> tuple[list[Answer[W]], str | None]:
        """``session/cancel`` and ``session/close`` cover all that is not inserted (KEY-7, CAN-1); as :meth:`cancel`."""
        answers: list[Answer[W]] = []
        submitted: str | None = None
        for prompt in list(self._prompts.values()):
            if prompt.state is State.SUBMITTED:
                submitted = prompt.message_id
            else:
                answers += self._take_back(prompt, RequestCancelled(reason))
        return answers, submitted

    # What the history says.

    @property
    def history_known(self) -> bool:
        """Whether the ids of all stored messages are known."""
        return self._known is not None

    @property
    def needs_history(self) -> bool:
        """Whether a message waits for the history to be read."""
        return self._known is None and any(p.state in _UNREAD for p in self._prompts.values())

    @property
    def in_doubt(self) -> bool:
        """Whether a request waits to be told that nothing was inserted, or that it was."""
        return any(p.doubted for p in self._prompts.values())

    @property
    def reading(self) -> int:
        """To be taken before a read of the history and given to :meth:`learn` with what was read."""
        return self._reading

    def learn(self, stored: Set[str], reading: int | None = None) -> list[Answer[W]]:
        """The whole history was read: these ids are stored. The set is taken over, not copied.

        Without effect when the history became uncertain after the read began (``reading``): the runtime may have stored
        a message behind the reader's back.
        """
        if reading is not None and reading != self._reading:
            return []
        known = stored if isinstance(stored, set) else set(stored)
        known.update(self._digests)
        self._known = known
        self._seen = frozenset()
        answers: list[Answer[W]] = []
        unread = [prompt for prompt in self._prompts.values() if prompt.state in _UNREAD]
        waiting = len(self._prompts) - len(unread)
        # Of a submitted one the runtime itself tells what became of it.
        for prompt in unread:
            if prompt.message_id in known:
                answers += self._found(prompt)
            elif prompt.state is State.DOUBTED:
                answers += self._end(prompt, Event.ABSENT)
            elif waiting >= MAX_UNSTORED:
                answers += self._end(prompt, Event.REFUSE, _too_many())
            else:
                waiting += 1
                answers += self._verdicts(prompt)
                self._move(prompt, Event.ABSENT)
        return answers

    def doubt(self, message_id: str, error: SayagainError) -> None:
        """The runtime ended, or failed, and nobody could tell whether it stored the message.

        Its requests are answered when the history was read again: with the id, or with ``error``.
        """
        self._known = None
        self._reading += 1
        prompt = self._prompts.get(message_id)
        if prompt is not None and prompt.state is State.SUBMITTED:
            self._move(prompt, Event.DOUBT)
            self._set_aside(prompt, error)

    def history_failed(self, error: SayagainError, found: Set[str] = frozenset()) -> list[Answer[W]]:
        """The history could not be read: an error for those that wait for it, never an empty set (section 4).

        ``found`` are ids that were read all the same: see :meth:`saw`.
        """
        answers = self.saw(found) if found else []
        for prompt in list(self._prompts.values()):
            if prompt.state in _UNREAD:
                answers += self._end(prompt, Event.REFUSE, error)
        return answers

    def saw(self, stored: Set[str]) -> list[Answer[W]]:
        """These ids were read by one who does not own the session: what is there proves that it is stored, what is not
        there proves nothing. The set is taken over, not copied."""
        if self._known is not None:
            return []
        self._seen = stored
        found = [p for p in self._prompts.values() if p.state in _UNREAD and p.message_id in stored]
        return [answer for prompt in found for answer in self._found(prompt)]

    # What the runtime does.

    @property
    def submitted(self) -> Prompt[W] | None:
        """The message that the runtime has and has not stored yet: one at most."""
        return next((p for p in self._prompts.values() if p.state is State.SUBMITTED), None)

    def work_started(self) -> None:
        """The runtime works; held prompts wait."""
        self._working = True

    def work_ended(self) -> None:
        """The runtime is idle; held prompts may go, unless a submitted message awaits its outcome."""
        self._working = False
        if self.submitted is None:
            self._given = False

    @property
    def busy(self) -> bool:
        """Whether the runtime works, or will: a message that was just stored may not have its ``running`` yet."""
        return self._working or self._given

    @property
    def next_held(self) -> Prompt[W] | None:
        """The message that goes to the runtime next; ``None`` unless the runtime is idle and has none."""
        if self.busy or self.submitted is not None:
            return None
        return next((p for p in self._prompts.values() if p.state is State.HELD), None)

    def submit_next(self) -> Prompt[W] | None:
        """:attr:`next_held`, now submitted."""
        prompt = self.next_held
        if prompt is not None:
            self._move(prompt, Event.SUBMIT)
            self._given = prompt.given = True
        return prompt

    def stored(self, message_id: str) -> list[Answer[W]]:
        """The runtime stored the message, ours or one that it made itself."""
        if prompt := self._prompts.get(message_id):
            self._digests[message_id] = prompt.digest
            answers = self._end(prompt, Event.FOUND if prompt.state in _UNREAD else Event.STORE)
        else:
            answers = []
        if self._known is not None:
            self._known.add(message_id)
        return answers

    def refused(self, message_id: str, error: SayagainError) -> list[Answer[W]]:
        """The runtime will never store the message; the key is unused (KEY-4)."""
        prompt = self._prompts.get(message_id)
        return self._end(prompt, Event.REFUSE, error) if prompt else []

    def withdrawn(self, message_id: str, reason: str = "withdrawn before it was inserted") -> list[Answer[W]]:
        """The runtime gave the submitted message back. What else it works on goes on."""
        prompt = self._prompts.get(message_id)
        if prompt is None or prompt.state is not State.SUBMITTED:
            return []
        self._given = False
        return self._end(prompt, Event.WITHDRAW, RequestCancelled(reason))

    def _take_back(self, prompt: Prompt[W], error: RequestCancelled) -> list[Answer[W]]:
        if TRANSITIONS[prompt.state, Event.WITHDRAW] is not State.DOUBTED:
            return self._end(prompt, Event.WITHDRAW, error)
        self._move(prompt, Event.WITHDRAW)
        self._set_aside(prompt, error)
        return []

    def _set_aside(self, prompt: Prompt[W], error: SayagainError) -> None:
        prompt.doubted += [(waiter, error) for waiter in prompt.waiters]
        prompt.waiters.clear()

    def _found(self, prompt: Prompt[W]) -> list[Answer[W]]:
        if prompt.given:
            self._digests[prompt.message_id] = prompt.digest
        return self._end(prompt, Event.FOUND)

    def _verdicts(self, prompt: Prompt[W]) -> list[Answer[W]]:
        """It is not stored: those that nobody goes on with get their errors."""
        answers = [Answer(waiter, prompt.message_id, error) for waiter, error in prompt.doubted]
        prompt.doubted.clear()
        return answers

    def _move(self, prompt: Prompt[W], event: Event) -> None:
        prompt.state = TRANSITIONS[prompt.state, event]

    def _end(self, prompt: Prompt[W], event: Event, error: SayagainError | None = None) -> list[Answer[W]]:
        """Leave the table; all requests of the message are answered together (KEY-3)."""
        self._move(prompt, event)
        del self._prompts[prompt.message_id]
        # What is stored is stored for all of them; what could not be read is an error to all of them.
        early = self._verdicts(prompt) if event is Event.ABSENT else []
        waiters = [waiter for waiter, _ in prompt.doubted] + prompt.waiters
        return early + [Answer(waiter, prompt.message_id, error) for waiter in waiters]


def _digest(content: Sequence[Mapping[str, Any]]) -> bytes:
    # ASCII escapes, so that lone surrogates in a prompt can be hashed.
    canonical = json.dumps(_plain(content), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode("ascii"), digest_size=16).digest()


def _plain(value: object) -> object:
    """Without what says nothing about the prompt: ``null``, which is the same as absent (RPC-6), and ``_meta``."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {name: _plain(item) for name, item in fields.items() if item is not None and name != "_meta"}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    return value


def _too_many() -> PromptRefused:
    return PromptRefused(f"{MAX_UNSTORED} prompts already wait in this session")


def _reused() -> InvalidParams:
    return InvalidParams("idempotencyKey", "was used for another prompt in this session")
