"""A session as its application sees it: a stream of events, and prompts that are sent until they are confirmed."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import anyio

from sayagain import fault_points
from sayagain.client.errors import (
    AgentFault,
    OutboxError,
    PromptError,
    PromptFailed,
    PromptKept,
    PromptWithdrawn,
    ResumeFailed,
)
from sayagain.client.events import Event, Update, weigh
from sayagain.client.link import Link, LinkCall, LinkLost
from sayagain.client.outbox import StoredPrompt, start_of_today
from sayagain.client.prompts import Fate, Prompt, fate_of, is_garbled, new_key
from sayagain.client.replay import ReplayTracker
from sayagain.connection import PeerError
from sayagain.fault_points import Point

if TYPE_CHECKING:
    from sayagain.client.client import Client

__all__ = ["Resent", "Session"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resent:
    """What :meth:`Session.resend` did. Nothing is missing: each pending prompt of the session is in one of these,
    unless this process was at work on it already. Then its :class:`~sayagain.client.prompts.Prompt` tells."""

    inserted: Mapping[str, str]
    """Message ids by key."""

    errors: Sequence[PromptError]
    """Those that were sent and not confirmed; each names its key."""

    offered: Sequence[StoredPrompt]
    """Too old to be sent unasked: show them to the user, then ``resend(old=True)`` or ``Outbox.discard``."""

    elsewhere: int
    """How many a living process of another client works on."""


class Session:
    """Made by the client. Iterate over it for its events; one consumer at a time."""

    def __init__(self, client: Client, session_id: str, cwd: str, setup: Mapping[str, Any]) -> None:
        self._client = client
        self._session_id = session_id
        self.cwd = cwd
        self.setup = setup
        self.offers: Mapping[str, Any] = {}
        """What the agent answered at last: ``configOptions`` and ``availableCommands``."""
        self.attached: Link | None = None
        self.broken: ResumeFailed | None = None
        self.tracker: ReplayTracker | None = None
        self.known = False
        """Whether it was active once: then it is resumed on every new connection."""
        self.resuming = anyio.Lock()
        self.askers = 0
        """How many calls of the application's wait for it to be resumed."""
        self._events: deque[tuple[Event, int]] = deque()
        self._closed = False
        self._open: set[Prompt] = set()
        """All that are not settled: those in the queue, those in flight, and those whose fate is being noted."""
        self._queue: list[Prompt] = []
        """Those to be sent, in order."""
        self._submitting = anyio.Lock()
        self.moving = anyio.Lock()
        """Held from before the outbox has moved its prompts until it has its new id."""
        self._changed = anyio.Event()

    @property
    def session_id(self) -> str:
        """It changes when the session had to be moved (:class:`~sayagain.client.events.Moved`)."""
        return self._session_id

    # The stream.

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event. Ends when the session was closed; raises the fault when the agent is lost for good."""
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            if self.broken is not None:
                raise self.broken
            if self._client.fault is not None:
                raise self._client.fault
            await self._changed.wait()
        event, weight = self._events.popleft()
        self._client.read(weight)
        return event

    def pending_events(self) -> Sequence[Event]:
        """Take what has come and was not read yet, without waiting."""
        events = [event for event, _ in self._events]
        for _, weight in self._events:
            self._client.read(weight)
        self._events.clear()
        return events

    # Prompts.

    async def prompt(self, content: str | Sequence[Mapping[str, Any]], *, key: str | None = None) -> str:
        """Submit a prompt and wait until it is inserted; the message's id."""
        return await (await self.submit(content, key=key)).inserted()

    async def submit(self, content: str | Sequence[Mapping[str, Any]], *, key: str | None = None) -> Prompt:
        """Take a prompt from the user: on return it is in the outbox, and on its way.

        ``content`` is text or content blocks. The key is made here, once; an application that keeps pending input of
        its own passes its own. Raises :class:`~sayagain.client.errors.OutboxError` when it cannot be kept: then it is
        not sent either.
        """
        key = key or new_key()
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [dict(block) for block in content]
        # Two that are submitted in order are kept and sent in order.
        async with self._submitting:
            under = self._session_id
            stored = await self._client.outbox.add(under, self.cwd, key, blocks)
            fault_points.passing(Point.CLIENT_KEPT)
            prompt = Prompt(stored.number, key, blocks, sent_before=False)
            async with self.moving:
                if under != self._session_id:
                    # It was moved meanwhile, and this one came too late to go along.
                    await self._record(prompt, self._client.outbox.follow(under))
                self._put(prompt)
        return prompt

    async def resend(self, *, old: bool = False, before: float | None = None, patience: float = 10.0) -> Resent:
        """Send the session's pending prompts of earlier processes again, in order, and wait for what becomes of each.

        Those submitted before ``before`` (Unix seconds; default: before today) are not sent unless ``old`` is true.
        Call it right after the session was resumed. ``patience`` is for the agent of a killed client to end.
        """
        before = start_of_today() if before is None else before
        async with self._submitting:
            while True:
                under = self._session_id
                # One that is being kept is pending, and worked on by nobody, in a moment.
                while any(not prompt.in_flight for prompt in self._open.difference(self._queue)):
                    await self._changed.wait()
                # Before the outbox is read: it calls those pending too that are withdrawn meanwhile.
                here = {prompt.key for prompt in self._open}
                stored, elsewhere = await self._client.outbox.take(under, patience=patience)
                async with self.moving:
                    # If it was moved meanwhile, they are under its new id.
                    if under == self._session_id:
                        break
            fault_points.passing(Point.CLIENT_TAKEN)
            rest = [row for row in stored if row.key not in here]
            offered = [row for row in rest if not old and row.submitted < before]
            prompts = [Prompt(row.number, row.key, row.content, sent_before=True) for row in rest if row not in offered]
            for prompt in prompts:
                self._put(prompt)
        inserted: dict[str, str] = {}
        errors: list[PromptError] = []
        for prompt in prompts:
            try:
                inserted[prompt.key] = await prompt.inserted()
            except PromptError as error:
                errors.append(error)
        return Resent(inserted, tuple(errors), tuple(offered), elsewhere)

    async def withdraw(self, prompt: Prompt) -> None:
        """Take a prompt back if it is not inserted yet; ``prompt.inserted()`` then tells what became of it."""
        prompt.wanted = False
        if prompt in self._queue:
            self._queue.remove(prompt)
            await self._unsent(prompt)
        elif prompt.link is not None and prompt.call is not None and prompt.in_flight:
            prompt.link.notify("$/cancel_request", {"requestId": prompt.call.id})

    # The session.

    async def cancel(self) -> None:
        """Stop the foreground work, and withdraw prompts that are not inserted (CAN-1).

        What was sent over a connection that is lost may have been inserted: such prompts are not sent again, but kept
        as withdrawn.
        """
        for prompt in self._open:
            prompt.wanted = False
        # All at once: while one is being noted, the next must not be sent.
        queue, self._queue = self._queue, []
        for prompt in queue:
            await self._unsent(prompt)
        if self.attached is not None and self.attached.is_open:
            # A notification: there is no answer to miss, and a repeat could hit later work.
            self.attached.notify("session/cancel", {"sessionId": self._session_id})

    async def close(self) -> None:
        """Stop all its work and free it; the stream ends. Pending prompts are withdrawn."""
        await self.cancel()
        try:
            await self._client.request("session/close", lambda: {"sessionId": self._session_id})
        finally:
            self._client.forget(self)
            self._closed = True
            self.change()

    async def set_config_option(self, config_id: str, value: str | bool) -> Sequence[Mapping[str, Any]]:
        """Set an option; all options with their values now."""
        kind = "boolean" if isinstance(value, bool) else "id"
        params = {"configId": config_id, "type": kind, "value": value}
        answer = await self.request("session/set_config_option", params)
        options: Sequence[Mapping[str, Any]] = answer.get("configOptions") or ()
        return options

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Any request about this session, sent again after a lost answer only where the retry table allows it."""
        return await self._client.request(method, lambda: {**params, "sessionId": self._session_id}, self)

    # What the client does with it.

    def deliver(self, event: Event) -> int:
        """Append to the stream; what it weighs until it is read."""
        weight = weigh(event.update) if isinstance(event, Update) else 0
        self._events.append((event, weight))
        self.change()
        return weight

    def change(self) -> None:
        """Something that tasks of this session may wait for has happened."""
        self._changed.set()
        self._changed = anyio.Event()

    def rename(self, session_id: str) -> None:
        """It is another session of the agent's from now on."""
        self._session_id = session_id

    @property
    def open_keys(self) -> Sequence[str]:
        """Of the prompts that this process works on, in order."""
        return [prompt.key for prompt in sorted(self._open, key=lambda prompt: prompt.number)]

    async def send_prompts(self) -> None:
        """Runs as long as the client: sends what is queued, whenever there is a connection to send it on."""
        async with anyio.create_task_group() as tasks:
            while not self._closed:
                if not self._queue:
                    await self._changed.wait()
                    continue
                try:
                    link = await self._client.linked(self)
                except (AgentFault, ResumeFailed) as fault:
                    # One of them: while it is being kept the fault may pass, and the next be sent.
                    if self._queue:
                        await self._kept(self._queue.pop(0), str(fault))
                    continue
                if not self._queue:
                    continue
                prompt = self._queue[0]
                if (pause := prompt.not_before - anyio.current_time()) > 0:
                    with anyio.move_on_after(pause):
                        await self._changed.wait()
                    continue
                call = self._write(prompt, link)
                if prompt.sends == 1:
                    tasks.start_soon(self._settle, prompt, link, call)
                else:
                    # One by one: a later prompt must not overtake one that has to be sent a third time.
                    await self._settle(prompt, link, call)

    def _write(self, prompt: Prompt, link: Link) -> LinkCall:
        self._queue.remove(prompt)
        prompt.sends += 1
        params = {"sessionId": self._session_id, "prompt": prompt.content, "idempotencyKey": prompt.key}
        prompt.link, prompt.call = link, link.begin("session/prompt", params)
        fault_points.passing(Point.CLIENT_SENT)
        return prompt.call

    def _put(self, prompt: Prompt) -> None:
        self._open.add(prompt)
        self._queue.append(prompt)
        self._queue.sort(key=lambda each: each.number)
        self.change()

    async def _settle(self, prompt: Prompt, link: Link, call: LinkCall) -> None:
        try:
            answer = await link.wait(call)
        except LinkLost:
            if not prompt.wanted:
                await self._withdrawn(prompt, "while the connection was lost")
            elif self._client.retries is not None:
                self._put(prompt)
            else:
                await link.ended.wait()
                await self._kept(prompt, str(link.fault))
        except PeerError as error:
            await self._refused(prompt, error)
        else:
            self._client.progress()
            message_id = answer.get("messageId")
            if isinstance(message_id, str) and message_id:
                fault_points.passing(Point.CLIENT_ANSWERED)
                await self._record(prompt, self._client.outbox.done(prompt.key, message_id))
                fault_points.passing(Point.CLIENT_DONE)
                self._settled(prompt, message_id)
            else:
                # Taken, but under no name: sending it again could insert it twice with an agent of this kind.
                await self._failed(prompt, "the agent took it without saying under which id", None)

    async def _refused(self, prompt: Prompt, error: PeerError) -> None:
        fate, retries = fate_of(error), self._client.retries
        if not prompt.wanted:
            await self._withdrawn(prompt, "before it was inserted", uncertain=is_garbled(error))
        elif fate is Fate.NEVER:
            await self._failed(prompt, error.text, error.code)
        elif fate is Fate.USER or retries is None or prompt.refusals + 1 >= retries.attempts:
            await self._kept(prompt, error.text, error.code, uncertain=is_garbled(error))
        else:
            prompt.refusals += 1
            prompt.not_before = anyio.current_time() + retries.pause(prompt.refusals)
            if fate is Fate.RESUME:
                self._client.reattach(self)
            self._put(prompt)

    async def _failed(self, prompt: Prompt, reason: str, code: int | None) -> None:
        await self._record(prompt, self._client.outbox.failed(prompt.key, code, reason))
        self._settled(prompt, PromptFailed(prompt.key, reason, code))

    async def _kept(
        self, prompt: Prompt, reason: str, code: int | None = None, *, uncertain: bool | None = None
    ) -> None:
        await self._record(prompt, self._client.outbox.note(prompt.key, code, reason))
        if prompt.wanted:
            self._settled(prompt, PromptKept(prompt.key, reason, code))
        else:
            await self._withdrawn(prompt, "while it was being kept", uncertain=uncertain)

    async def _unsent(self, prompt: Prompt) -> None:
        await self._withdrawn(prompt, "before it was sent" if not prompt.sends else "before it was sent again")

    async def _withdrawn(self, prompt: Prompt, reason: str, *, uncertain: bool | None = None) -> None:
        uncertain = prompt.sends > 0 if uncertain is None else uncertain
        await self._record(prompt, self._client.outbox.withdrawn(prompt.key, reason))
        self._settled(prompt, PromptWithdrawn(prompt.key, reason, uncertain=uncertain))

    def _settled(self, prompt: Prompt, outcome: str | PromptError) -> None:
        self._open.discard(prompt)
        prompt.settle(outcome)
        self.change()

    async def _record(self, prompt: Prompt, writing: Any) -> None:
        """What the outbox does not take stays pending there: it is sent again some day, which its key makes safe."""
        try:
            with anyio.CancelScope(shield=True):
                await writing
        except OutboxError as error:
            logger.warning("the outbox misses what became of prompt %d: %s", prompt.number, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
