"""The chat itself: one session at a time, its stream on the screen, the user's lines as prompts."""

from __future__ import annotations

import hashlib
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc

from sayagain.chat.render import Renderer, clean
from sayagain.chat.terminal import Keyboard, Screen
from sayagain.client import (
    AgentFault,
    Client,
    ClientError,
    Event,
    Outbox,
    OutboxError,
    PeerError,
    PermissionRequest,
    Prompt,
    PromptError,
    PromptWithdrawn,
    ResumeFailed,
    Session,
    StoredPrompt,
    Update,
    with_retries,
)
from sayagain.processes.state import state_dir

__all__ = ["Chat", "ChatOptions", "chat"]

HELP: Final = """\
A line is a prompt. Ctrl-C stops the work; on an idle session it ends the chat, as Ctrl-D does.
  :new             a new session
  :resume [ID]     another session, with its history; without an ID, choose from a list
  :pending         prompts that are not confirmed
  :quit            end"""

LISTED: Final = 20
"""Sessions in the list to choose from, latest first."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What to chat with, where, and whether to resume: an id, ``""`` for a list, ``None`` for a new session."""

    command: tuple[str, ...]
    name: str
    cwd: Path
    resume: str | None
    outbox: Path | None


async def chat(options: ChatOptions) -> int:
    """Chat until the input ends; the exit status: 0, 1 for a failure, 130 after Ctrl-C in a pipe."""
    screen = Screen()
    path = options.outbox or _outbox_path(options)
    try:
        async with Outbox(path) as outbox:
            app = Chat(options, outbox, screen)
            async with with_retries(
                options.command, outbox=outbox, on_permission=app.ask, info={"name": "sayagain-chat", "version": "1"}
            ) as client:
                status = await app.run(client)
            left = await outbox.prompts()
            if left:
                screen.line(
                    f"{len(left)} unconfirmed prompts are kept in {path}; the next chat sends them again.", "note"
                )
            return status
    except (AgentFault, OutboxError) as error:
        screen.line(f"sayagain chat: {clean(str(error))}", "error")
        return 1


def _outbox_path(options: ChatOptions) -> Path:
    """One for each agent: its sessions mean nothing to another."""
    name = options.name
    if not name.isidentifier():
        name = hashlib.sha256("\0".join(options.command).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return state_dir() / f"chat-{name}.db"


class Chat:
    """One run of the chat."""

    def __init__(self, options: ChatOptions, outbox: Outbox, screen: Screen) -> None:
        self._options = options
        self._outbox = outbox
        self._screen = screen
        self._renderer = Renderer()
        self._keyboard = Keyboard()
        self._questions: deque[_Question] = deque()
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
                if await self._begin():
                    await (self._converse() if self._keyboard.is_terminal else self._read_all())
                self._tasks.cancel_scope.cancel()
        finally:
            await self._keyboard.aclose()
        self._screen.show(self._renderer.end_line())
        return self._status

    async def ask(self, request: PermissionRequest) -> str | None:
        """The agent asks for a permission: the next line of input answers."""
        if not self._keyboard.is_terminal:
            self._screen.show(self._renderer.note(f"Not approved, nobody can be asked: {request.title}", "error"))
            return None
        question = _Question(request)
        self._questions.append(question)
        self._show_question()
        try:
            return await question.answer()
        finally:
            self._questions.remove(question)
            self._show_question()

    # Sessions.

    async def _begin(self) -> bool:
        """The session to begin with; false when there is none."""
        pending = await self._outbox.sessions()
        try:
            if self._options.resume is not None:
                return await self._resume(self._options.resume or None)
            if pending:
                session_id, cwd = list(pending.items())[-1]
                self._screen.line("The last chat left prompts that were not confirmed.", "note")
                await self._open(session_id, cwd)
            else:
                await self._new()
        except ResumeFailed as error:
            self._screen.line(clean(str(error)), "error")
            await self._new()
        except (ClientError, PeerError) as error:
            self._screen.line(clean(str(error)), "error")
            self._status = 1
            return False
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
        resent = await session.resend()
        for error in resent.errors:
            self._screen.show(self._renderer.note(str(error), "error"))
        if resent.inserted:
            self._screen.show(self._renderer.note(f"Confirmed now: {_count(len(resent.inserted))}."))
        if resent.elsewhere:
            self._screen.show(self._renderer.note(f"Left to another chat that runs: {_count(resent.elsewhere)}."))
        for row in resent.offered:
            self._screen.show(self._renderer.note(f"Not sent, it is old: {_excerpt(row)} (:pending tells what to do)"))

    def _switch(self, session: Session) -> None:
        self._reader.cancel()
        self._session = session
        self._renderer = Renderer()
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
        if self._idle and not self._questions:
            self._screen.ready()

    # Input.

    async def _converse(self) -> None:
        self._screen.ready()
        while (line := await self._keyboard.line()) is not None:
            self._screen.typed()
            text = line.strip()
            if self._questions:
                self._questions[0].take(text, self._screen)
            elif text.startswith(":"):
                if not await self._command(text):
                    return
            elif text:
                await self._prompt(line)
            if self._idle and not self._questions:
                self._screen.ready()
        self._screen.line("")

    async def _read_all(self) -> None:
        """In a pipe: one prompt after the other, each until its work is done."""
        while (line := await self._keyboard.line()) is not None:
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
            self._screen.show(self._renderer.note(str(error)))
        elif error is not None:
            self._screen.show(self._renderer.note(clean(str(error)), "error"))

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
                case ":resume":
                    await self._resume(rest.strip() or None)
                case ":pending":
                    await self._pending()
                case _:
                    self._screen.line(HELP)
        except (ClientError, PeerError) as error:
            self._screen.line(clean(str(error)), "error")
        return True

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
        rows = [(str(row.get("title") or "untitled"), str(row.get("updatedAt") or "")) for row in found[:LISTED]]
        chosen = await self._choose([f"{title[:60]}  {when[:16].replace('T', ' ')}".rstrip() for title, when in rows])
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
        chosen = await self._choose([f"{row.state}: {_excerpt(row)}" for row in rows])
        if chosen is None:
            return
        what = await self._choose(["send it again", "discard it"])
        row = rows[chosen]
        if what == 0:
            await self._outbox.reopen(row.key)
            await self._open(row.session_id, row.cwd)
        elif what == 1:
            await self._outbox.discard(row.key)

    async def _choose(self, rows: Sequence[str]) -> int | None:
        """The index of the row that the user picks; ``None`` for an empty line."""
        for number, row in enumerate(rows, 1):
            self._screen.line(f"  {number}. {clean(row)}")
        while True:
            self._screen.line("Which one? (number, or Enter for none)", "ask")
            line = await self._keyboard.line()
            self._screen.typed()
            if not (line or "").strip():
                return None
            if line is not None and line.strip().isdecimal() and 1 <= int(line) <= len(rows):
                return int(line) - 1

    def _show_question(self) -> None:
        if self._questions:
            self._questions[0].show(self._screen)

    # Ctrl-C.

    async def _signals(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                session = self._session
                if session is None or not self._keyboard.is_terminal:
                    self._status = 130
                    break
                if self._idle and not self._questions and not session.open_keys:
                    break
                self._screen.show(self._renderer.note("Stopping…"))
                await session.cancel()
        if self._status == 130 and self._session is not None:
            await self._session.cancel()
        self._tasks.cancel_scope.cancel()


class _Question:
    """A permission that the agent waits for."""

    def __init__(self, request: PermissionRequest) -> None:
        self._request = request
        self._done = anyio.Event()
        self._option: str | None = None
        self._shown = False

    def show(self, screen: Screen) -> None:
        if self._shown:
            return
        self._shown = True
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
        if line.isdecimal() and 1 <= int(line) <= len(self._request.options):
            self._option = str(self._request.options[int(line) - 1].get("optionId"))
        else:
            screen.line("Not approved.", "note")
        self._done.set()

    async def answer(self) -> str | None:
        await self._done.wait()
        return self._option


def _count(prompts: int) -> str:
    return f"{prompts} unconfirmed prompt{'' if prompts == 1 else 's'}"


def _excerpt(row: StoredPrompt) -> str:
    text = " ".join(str(block.get("text", block.get("type"))) for block in row.content)
    return clean(text if len(text) <= 60 else text[:59] + "…").replace("\n", " ")
