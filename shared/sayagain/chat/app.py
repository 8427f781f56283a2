"""The chat itself: one session at a time, its stream on the screen, the user's lines as prompts."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
import anyio.abc

from sayagain.chat.asking import Asking
from sayagain.chat.lines import Lines
from sayagain.chat.options import ChatOptions
from sayagain.chat.render import Renderer
from sayagain.chat.rows import prompt_row, session_row
from sayagain.chat.spans import clean
from sayagain.chat.terminal import Keyboard, Screen
from sayagain.client import (
    Client,
    ClientError,
    Event,
    Outbox,
    OutboxError,
    PeerError,
    Prompt,
    PromptError,
    PromptWithdrawn,
    ResumeFailed,
    Session,
    Update,
    with_retries,
)

__all__ = ["Chat", "chat"]

HELP: Final = """\
A line is a prompt. Ctrl-C stops the work; on an idle session it ends the chat, as Ctrl-D does.
  :new             a new session
  :info            the session: its options, its use of the context, its commands
  :resume [ID]     another session, with its history; without an ID, choose from a list
  :pending         prompts that are not confirmed
  :quit            end"""

UNCHOSEN: Final = (
    "No session is chosen. In a pipe the first line of the input has to be a number of the list; or name the session: "
    "--session ID"
)

LISTED: Final = 20
"""Sessions in the list to choose from, latest first."""


async def chat(options: ChatOptions) -> int:
    """Chat until the input ends; the exit status: 0, 1 for a failure, 130 after Ctrl-C in a pipe."""
    screen = Screen()
    path = options.outbox_path
    try:
        async with Outbox(path) as outbox:
            app = Chat(options, outbox, screen)
            async with with_retries(
                options.command,
                outbox=outbox,
                on_permission=app.asking.permission,
                handlers={"elicitation/create": app.asking.elicitation},
                listeners={"elicitation/complete": app.asking.completed},
                capabilities=app.asking.capabilities,
                info={"name": "sayagain-chat", "version": "1"},
            ) as client:
                status = await app.run(client)
            left = await outbox.prompts()
            if left:
                screen.line(
                    f"{len(left)} unconfirmed prompts are kept in {path}; the next chat sends them again.", "note"
                )
            return status
    except* (ClientError, PeerError) as trouble:
        # In a group, what a task of the chat did not expect; one line says enough.
        screen.line(f"sayagain chat: {clean(str(_first_of(trouble)))}", "error")
    return 1


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


class Chat:
    """One run of the chat."""

    def __init__(self, options: ChatOptions, outbox: Outbox, screen: Screen) -> None:
        self._options = options
        self._outbox = outbox
        self._screen = screen
        self._renderer = Renderer()
        self._keyboard = Keyboard()
        self.asking = Asking(
            screen,
            present=self._keyboard.is_terminal,
            begin=self._begin_question,
            settled=self._invite,
            note=self._note,
        )
        self._lines = Lines(self._keyboard, screen, self.asking)
        self._client: Client
        self._session: Session | None = None
        self._tasks: anyio.abc.TaskGroup
        self._reader = anyio.CancelScope()
        self._idle = True
        self._idles = 0
        self._changed = anyio.Event()
        self._status = 0

    async def run(self, client: Client) -> int:
        """Until the input ends."""
        self._client = client
        info: Mapping[str, Any] = client.agent.get("info") or {}
        self._screen.line(clean(f"{info.get('title') or info.get('name')} {info.get('version', '')}".strip()), "title")
        if self._keyboard.is_terminal:
            self._screen.line("A line is a prompt, :help tells more.", "note")
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._tasks.start(self._signals)
                if self._keyboard.is_terminal:
                    self._tasks.start_soon(self._lines.listen)
                if await self._begin():
                    await (self._converse() if self._keyboard.is_terminal else self._read_all())
                self._tasks.cancel_scope.cancel()
        finally:
            await self._keyboard.aclose()
        self._end_line()
        return self._status

    # Sessions.

    async def _begin(self) -> bool:
        """The session to begin with; false when there is none."""
        try:
            return await self._first()
        except (ClientError, PeerError) as error:
            self._screen.line(clean(str(error)), "error")
            self._status = 1
            return False

    async def _first(self) -> bool:
        in_pipe = not self._keyboard.is_terminal
        wanted = self._options.resume
        pending = await self._outbox.sessions()
        try:
            if wanted is not None:
                if await self._resume(wanted or None):
                    return True
                if in_pipe:
                    self._screen.line(UNCHOSEN, "error")
                    self._status = 1
                return False
            if pending:
                session_id, cwd = list(pending.items())[-1]
                self._screen.line("The last chat left prompts that were not confirmed.", "note")
                await self._open(session_id, cwd)
                return True
        except ResumeFailed as error:
            if in_pipe and wanted is not None:
                # Nobody is there to see that what was meant for this session goes into another.
                raise
            self._screen.line(clean(str(error)), "error")
        await self._new()
        return True

    async def _new(self) -> None:
        self._switch(await self._client.new_session(str(self._options.cwd)))

    async def _open(self, session_id: str, cwd: str) -> None:
        """Resume with history, and send again what is pending."""
        self._screen.line(f"Session {clean(session_id)}", "note")
        # It may be this very session: its history is for the new page, not for the reader of the old one.
        self._reader.cancel()
        try:
            session, replay = await self._client.resume(session_id, cwd, replay=True)
        except ClientError:
            if self._session is not None:
                self._tasks.start_soon(self._read, self._session)
            raise
        self._switch(session)
        if replay is not None and replay.violations:
            self._screen.line(f"The agent breaks the rules of replay: {', '.join(set(replay.violations))}", "note")
        if self._keyboard.is_terminal:
            # It waits until the agent has taken all of them, and may ask the user before.
            self._tasks.start_soon(self._resend, session)
        else:
            await self._resend(session)

    async def _resend(self, session: Session) -> None:
        try:
            resent = await session.resend()
        except OutboxError as error:
            self._note(str(error), "error")
            return
        for failure in resent.errors:
            self._note(str(failure), "error")
        if resent.inserted:
            self._note(f"Confirmed now: {_count(len(resent.inserted))}.")
        if resent.elsewhere:
            self._note(f"Left to another chat that runs: {_count(resent.elsewhere)}.")
        for row in resent.offered:
            self._note(f"Not sent, it is old: {prompt_row(row)} (:pending tells what to do)")

    def _switch(self, session: Session) -> None:
        self._reader.cancel()
        self._session = session
        self._renderer = Renderer()
        self._renderer.facts.begin(session.offers)
        # What came with the resume is printed before anything else is.
        for event in session.pending_events():
            self._show(event)
        self._tasks.start_soon(self._read, session)

    async def _read(self, session: Session) -> None:
        with anyio.CancelScope() as self._reader:
            try:
                async for event in session:
                    self._show(event)
            except ClientError as error:
                self._screen.line(clean(str(error)), "error")
                self._status = 1
                self._tasks.cancel_scope.cancel()

    def _show(self, event: Event) -> None:
        if isinstance(event, Update) and self._session is not None and event.session_id == self._session.session_id:
            state = event.update.get("state") if event.update.get("sessionUpdate") == "state_update" else None
            if isinstance(state, str):
                self._idle = state == "idle"
                self._idles += self._idle
                self._changed.set()
                self._changed = anyio.Event()
        self._screen.show(self._renderer.take(event))
        self._invite()

    # Input.

    def _invite(self) -> None:
        if self._idle and not self.asking.is_open:
            self._screen.ready()

    def _begin_question(self, about: Update | None) -> None:
        if about is not None:
            self._screen.show(self._renderer.take(about))
        self._end_line()

    def _end_line(self) -> None:
        self._screen.show(self._renderer.end_line())

    def _note(self, text: str, style: str = "note") -> None:
        """A line of the chat's own, beside what the agent prints."""
        self._screen.show(self._renderer.note(text, style))

    async def _converse(self) -> None:
        self._invite()
        while (line := await self._lines.next()) is not None:
            text = line.strip()
            if text.startswith(":"):
                if not await self._command(text):
                    return
            elif text:
                await self._prompt(line)
            self._invite()
        self._screen.line("")

    async def _read_all(self) -> None:
        """In a pipe: one prompt after the other, each until its work is done."""
        while (line := await self._lines.next()) is not None:
            if not line.strip():
                continue
            self._screen.line(f"> {clean(line)}", "user")
            idles = self._idles
            prompt = await self._prompt(line)
            if prompt is None or await self._outcome(prompt) is not None:
                self._status = 1
                continue
            while self._idles == idles or not self._idle:
                await self._changed.wait()
            if self._renderer.failed:
                self._status = 1

    async def _prompt(self, text: str) -> Prompt | None:
        assert self._session is not None
        try:
            self._renderer.typed(text)
            prompt = await self._session.submit(text)
        except OutboxError as error:
            self._screen.line(f"The prompt is not sent: {error}", "error")
            return None
        self._tasks.start_soon(self._report, prompt)
        return prompt

    async def _report(self, prompt: Prompt) -> None:
        error = await self._outcome(prompt)
        if isinstance(error, PromptWithdrawn):
            self._note(str(error))
        elif error is not None:
            self._note(str(error), "error")

    async def _outcome(self, prompt: Prompt) -> PromptError | None:
        try:
            await prompt.inserted()
        except PromptError as error:
            return error
        return None

    async def _command(self, text: str) -> bool:
        """Whether the chat goes on."""
        name, _, rest = text.partition(" ")
        try:
            match name:
                case ":quit" | ":q":
                    return False
                case ":new":
                    await self._new()
                case ":info":
                    self._info()
                case ":resume":
                    await self._resume(rest.strip() or None)
                case ":pending":
                    await self._pending()
                case _:
                    self._screen.line(HELP)
        except (ClientError, PeerError) as error:
            self._screen.line(clean(str(error)), "error")
        return True

    def _info(self) -> None:
        assert self._session is not None
        self._screen.line(f"Session {clean(self._session.session_id)} in {clean(self._session.cwd)}")
        for line in self._renderer.facts.lines():
            self._screen.line(clean(line))

    async def _resume(self, session_id: str | None) -> bool:
        found = await self._client.list_sessions(None if session_id else str(self._options.cwd))
        if session_id is not None:
            cwd = next((str(row.get("cwd")) for row in found if row.get("sessionId") == session_id), None)
            await self._open(session_id, cwd or str(self._options.cwd))
            return True
        if not found:
            self._screen.line("There are no stored sessions in this directory.", "note")
            await self._new()
            return True
        chosen = await self._lines.choose([session_row(row) for row in found[:LISTED]])
        if chosen is None:
            return False
        row = found[chosen]
        await self._open(str(row.get("sessionId")), str(row.get("cwd")))
        return True

    async def _pending(self) -> None:
        rows = await self._outbox.prompts(states=("pending", "failed", "withdrawn"))
        assert self._session is not None
        mine = set(self._session.open_keys)
        rows = [row for row in rows if row.key not in mine]
        if not rows:
            self._screen.line("All prompts are confirmed.", "note")
            return
        chosen = await self._lines.choose([f"{row.state}: {prompt_row(row)}" for row in rows])
        if chosen is None:
            return
        what = await self._lines.choose(["send it again", "discard it"])
        row = rows[chosen]
        if what == 0:
            await self._outbox.reopen(row.key)
            await self._open(row.session_id, row.cwd)
        elif what == 1:
            await self._outbox.discard(row.key)

    # Ctrl-C.

    async def _signals(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                session = self._session
                if self.asking.cancel():
                    continue
                if session is None or not self._keyboard.is_terminal:
                    self._status = 130
                    break
                if self._idle and not self.asking.is_open and not session.open_keys:
                    break
                self._note("Stopping…")
                await session.cancel()
        if self._status == 130 and self._session is not None:
            await self._session.cancel()
        self._tasks.cancel_scope.cancel()


def _count(prompts: int) -> str:
    return f"{prompts} unconfirmed prompt{'' if prompts == 1 else 's'}"
