"""One Claude Code session: a process when there is work, and the proof of what it stored.

The process is started ahead of the first prompt and again whenever it is gone; the session itself is what is stored.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
import anyio.abc

from sayagain import fault_points
from sayagain.errors import (
    AuthRequired,
    PromptRefused,
    RequestCancelled,
    RuntimeDied,
    RuntimeFault,
)
from sayagain.fault_points import Point
from sayagain.protocol.lines import TooLong
from sayagain.runtime.events import RuntimeEvent
from sayagain.runtime.seam import GLANCE, OWNER_PATIENCE, SessionSetup
from sayagain.runtime.tasks import SessionTasks
from sayagain.runtime.word import Word
from sayagain_claude.account import signed_in
from sayagain_claude.beside import Beside
from sayagain_claude.commands import available_commands, refusal, with_command_last
from sayagain_claude.control import user_frame
from sayagain_claude.host import Host
from sayagain_claude.landing import Landing
from sayagain_claude.option_control import OptionControl
from sayagain_claude.options import Options
from sayagain_claude.outbox import Outbox
from sayagain_claude.patience import Patience
from sayagain_claude.process import ClaudeProcess
from sayagain_claude.questions import Questions
from sayagain_claude.submission import Submission, encoded
from sayagain_claude.transcripts import paths
from sayagain_claude.transcripts.listing import session_title
from sayagain_claude.translate.live import LiveTranslator
from sayagain_claude.translate.prompts import prompt_content
from sayagain_claude.turns import Turns

__all__ = ["ClaudeSession"]

logger = logging.getLogger(__name__)


class ClaudeSession:
    """Implements ``RuntimeSession``."""

    def __init__(
        self,
        session_id: str,
        setup: SessionSetup,
        *,
        executable: str,
        env: Mapping[str, str],
        patience: Patience,
        stored: bool,
        options: Options,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._session_id = session_id
        self._patience = patience
        self._tasks = SessionTasks(tasks, self._fail)
        self._turns = Turns(session_id)
        self._translator = LiveTranslator(session_id, setup.cwd)
        self._outbox = Outbox(session_id)
        self._emit = self._outbox.emit
        self._beside = Beside(session_id, env, self._translator.tasks, self._emit)
        self._options = OptionControl(session_id, options, emit=self._emit, tasks=self._tasks, patience=patience.answer)
        self._questions = Questions(session_id, setup, self._translator, self._options, self._emit)
        config = paths.config_dir(env)
        self._landing = Landing(session_id, config, stored=stored)
        self._host = Host(
            session_id,
            setup,
            executable=executable,
            env=env,
            config=config,
            patience=patience,
            tasks=self._tasks,
            read=self._read,
            started=self._started,
        )
        self._account: Mapping[str, Any] = {}
        self._commands: frozenset[str] = frozenset()
        self._word = Word()
        self._submission = Submission(
            self,
            host=self._host,
            turns=self._turns,
            landing=self._landing,
            word=self._word,
            tasks=self._tasks,
            emit=self._emit,
            patience=patience.answer,
        )
        self._outbox.begin(self._beside)

    @property
    def session_id(self) -> str:
        """The id, which is ours: the CLI is given it."""
        return self._session_id

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """See the seam."""
        return self._outbox.events()

    @property
    def models(self) -> Sequence[Mapping[str, Any]]:
        """The models that the CLI offers; none before it has started."""
        return self._options.models

    def snapshot(self) -> Sequence[Mapping[str, Any]]:
        """Title, usage and commands as last reported."""
        return [*self._outbox.latest.snapshot(), *self._beside.snapshot()]

    def running_tasks(self) -> Sequence[str]:
        """Tasks whose output clients are being told, which a replay therefore leaves out."""
        return self._beside.running()

    def describe(self, title: str) -> None:
        """The title that the store has for the session, until the CLI says something newer."""
        self._outbox.describe(title)

    def warm_up(self) -> None:
        """Start the process ahead of the first prompt, which then finds it ready. What fails here is told there."""
        self._tasks.start_soon(self._warm_up)

    async def _warm_up(self) -> None:
        try:
            await self.own(patience=GLANCE)
            async with self._host.lifecycle:
                await self._running()
        except RuntimeFault as error:
            if not self._host.closed:
                logger.warning("Claude Code was not started ahead: %s", error)

    async def own(self, *, patience: float = OWNER_PATIENCE) -> None:
        """See the seam: the lease of this session."""
        await self._host.own(patience)

    # The process.

    async def _running(self) -> ClaudeProcess:
        return await self._host.running(self._options.arguments, self._landing.any)

    async def _started(self, process: ClaudeProcess, answer: Mapping[str, Any]) -> None:
        self._submission.process_started()
        self._account = answer.get("account") or {}
        self._options.started(process, answer)
        await self._tell_commands(answer.get("commands"))

    async def _tell_commands(self, commands: object) -> None:
        offered = available_commands(commands)
        self._commands = frozenset(command["name"] for command in offered)
        update = {"sessionUpdate": "available_commands_update", "availableCommands": offered}
        if update != self._outbox.latest.of("available_commands_update"):
            await self._outbox.update(update)

    async def _read(self, process: ClaudeProcess) -> None:
        """Everything that one process says, then what its end means."""
        try:
            async for frame in process.frames():
                self._word.wake()
                if isinstance(frame, TooLong):
                    # It may have been the row that we wait for.
                    await self._submission.settle(rejecting=False)
                else:
                    await self._frame(process, frame)
        except Exception:
            logger.exception("reading Claude Code's output failed")
        finally:
            with anyio.CancelScope(shield=True):
                status = await process.kill()
                if self._host.process is process:
                    self._host.process = None
                await self._died(f"Claude Code ended ({status})")

    async def _frame(self, process: ClaudeProcess, frame: Mapping[str, Any]) -> None:
        if self._submission.not_stored is not None:
            # What is left in the pipe of a process that was ended is of work that nobody will know.
            return
        if self._turns.runs_without_row(frame) and not await self._submission.landed_or_ended(process):
            return
        match frame.get("type"):
            case "control_request":
                await self._questions.asked(process, frame)
                return
            case "control_cancel_request":
                await self._questions.withdrawn(frame)
                return
            case "transcript_mirror":
                pass
            case "system" | "result":
                await self._beside.before(frame)
                await self._emit(self._translator.frame(frame))
                await self._options.frame(process, frame)
                if frame.get("subtype") == "commands_changed":
                    await self._tell_commands(frame.get("commands"))
            case _:
                await self._emit(self._translator.frame(frame))
        over = self._turns.over_without_row(frame)
        await self._emit(self._turns.frame(frame))
        if over:
            # A withdrawal may be answered with no before it has its way (measured).
            cancelled = frame.get("state") == "cancelled"
            await self._submission.settle(rejecting=True, error=RequestCancelled() if cancelled else None)
        process.awaited = encoded(self._turns.submitted)
        if frame.get("type") in ("system", "user") and await self._beside.after():
            self._tasks.start_soon(self._beside.watch)

    async def _died(self, detail: str) -> None:
        """The process is gone, so the transcript is final: it says what became of the message."""
        fault_points.passing(Point.RUNTIME_GONE)
        cause, self._submission.not_stored = self._submission.not_stored, None
        await self._questions.withdraw_all()
        try:
            fault = cause or RuntimeDied(f"{detail} before the message was stored")
            await self._submission.settle(rejecting=True, error=fault)
        except RuntimeFault as error:
            # Nobody can tell: the answer is an error, and a retry will read again before it submits.
            await self._emit(self._turns.refused(error))
        await self._beside.ending()
        stopped = self._turns.cancelling or self._host.closed
        await self._emit(self._translator.close_calls("cancelled" if stopped else "failed"))
        await self._emit(self._turns.died(cause or RuntimeDied(detail)))
        await self._beside.after()

    # Prompts.

    async def submit(self, message_id: str, content: Sequence[Mapping[str, Any]]) -> None:
        """See the seam. The proof is the mirrored row; without a word from the CLI it is asked whether it lives."""
        if reason := refusal(content, self._commands):
            raise PromptRefused(reason)
        sent = prompt_content(with_command_last(content, self._commands))
        frame = user_frame(self._session_id, message_id, sent)
        process = await self._submission.begin(message_id, self._signed_in)
        if process is not None:
            await self._name(content)
            await self._submission.write(process, message_id, frame)

    async def _signed_in(self) -> ClaudeProcess:
        process = await self._running()
        if not signed_in(self._account):
            # A new process will look again, after the user has signed in.
            await self._host.end()
            raise AuthRequired("Not signed in to Claude Code")
        return process

    async def withdraw(self, message_id: str) -> bool:
        """See the seam: before it is written, or out of the CLI's own queue."""
        return await self._submission.withdraw(message_id)

    async def _name(self, content: Sequence[Mapping[str, Any]]) -> None:
        """A session without a title is called by its first prompt, as ``session/list`` will call it."""
        if self._outbox.entitled:
            return
        title = session_title(" ".join(str(block["text"]) for block in content if block.get("type") == "text"))
        if title is not None:
            await self._outbox.entitle(title)

    async def renamed(self, title: str) -> None:
        """The client named the session: tell the clients, and a running CLI, which else would write its own title."""
        await self._outbox.entitle(title)
        if (process := self._host.process) is not None:
            try:
                await process.request({"subtype": "rename_session", "title": title}, patience=self._patience.answer)
            except RuntimeFault as error:
                logger.warning("Claude Code was not told the new title: %s", error)

    def options(self) -> Sequence[Mapping[str, Any]]:
        """See the seam: a guess until the CLI has started."""
        return self._options.wire()

    async def set_option(self, config_id: str, value: str | bool) -> None:
        """See the seam. Starts the CLI when there is none: only it knows whether it takes the value."""
        self._options.check(config_id, value)
        await self.own()
        async with self._host.lifecycle:
            process = await self._running()
        await self._options.set(process, config_id, value)

    async def cancel_tool_call(self, tool_call_id: str) -> None:
        """See the seam."""
        await self._stop_task(self._beside.task_of("tool_call", tool_call_id))

    async def cancel_terminal(self, terminal_id: str) -> None:
        """See the seam."""
        await self._stop_task(self._beside.task_of("terminal", terminal_id))

    async def _stop_task(self, task_id: str) -> None:
        # A task that has just ended is no error for the CLI either (measured).
        if (process := self._host.process) is not None:
            await process.request({"subtype": "stop_task", "task_id": task_id}, patience=self._patience.answer)

    async def interrupt(self) -> None:
        """See the seam. What does not stop in time is ended with its process."""
        process = self._host.process
        self._turns.interrupt()
        if process is None or not self._turns.active:
            return
        try:
            await process.request({"subtype": "interrupt"}, patience=self._patience.answer)
        except RuntimeFault as error:
            logger.warning("the interrupt failed (%s); the process is ended", error)
            await process.kill()

    async def answer(self, ask_id: str, result: Mapping[str, Any] | None) -> None:
        """See the seam."""
        await self._questions.answer(self._host.process, ask_id, result)

    # The end.

    async def close(self) -> None:
        """See the seam: work is stopped, what is stored stays, every process is gone, the lease is free."""
        if self._host.closed:
            return
        self._host.closing()
        with anyio.CancelScope(shield=True):
            if self._turns.active:
                await self._stop()
            await self._host.abandon_start()
            async with self._host.lifecycle:
                await self._stop_commands()
                await self._host.end()
                await self._host.release()
            self._outbox.close()

    async def _fail(self) -> None:
        """Nobody knows any more what state this is in: the end of the events ends the session."""
        self._outbox.close()
        if (process := self._host.process) is not None:
            await process.kill()

    async def _stop(self) -> None:
        process = self._host.process
        with anyio.move_on_after(self._patience.finish):
            await self.interrupt()
            while self._turns.active and self._host.process is process:
                await self._word.wait()

    async def _stop_commands(self) -> None:
        """The CLI waits for its commands when its input ends (measured), and would be killed before it stored that."""
        try:
            for task_id in self._beside.commands():
                await self._stop_task(task_id)
        except RuntimeFault as error:
            logger.debug("a command was not stopped: %s", error)
