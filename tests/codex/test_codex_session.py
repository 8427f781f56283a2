"""What a session does when Codex does what it seldom does: over an app-server that the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest
from pytest_mock import MockerFixture

from sayagain.agent.session import Session
from sayagain.errors import (
    AuthRequired,
    HistoryUnreadable,
    PromptRefused,
    RequestCancelled,
    RuntimeDied,
    RuntimeMissing,
    SessionInUse,
)
from sayagain.runtime.events import Foreground, Inserted, Rejected, Update
from sayagain.runtime.seam import SessionSetup
from sayagain_codex import storage
from sayagain_codex.account import Account
from sayagain_codex.app_server import AppServerError, Use
from sayagain_codex.patience import Patience
from sayagain_codex.runtime import CodexRuntime
from sayagain_codex.session import CodexSession

PROMPT = [{"type": "text", "text": "Hello"}]
NOT_STEERABLE = AppServerError(-32603, "failed to submit turn input: ActiveTurnNotSteerable { turn_kind: Compact }")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Late:
    """An outcome that comes when the test wants it."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.wanted = anyio.Event()


class Server:
    """Answers by the test's functions; a list of outcomes is used up one by one."""

    running = True
    leaving = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.outcomes: dict[str, list[Any]] = {}
        self.killed = False
        self._changed = anyio.Event()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        patience: float | None = None,
        on_answer: Callable[[Any], None] | None = None,
    ) -> Any:
        self.asked.append((method, params))
        self._changed.set()
        self._changed = anyio.Event()
        await anyio.lowlevel.checkpoint()
        waiting = self.outcomes.get(method)
        outcome = waiting.pop(0) if waiting else DEFAULTS.get(method, {})
        if isinstance(outcome, Late):
            await outcome.wanted.wait()
            outcome = outcome.outcome
        if isinstance(outcome, Exception):
            raise outcome
        if on_answer is not None:
            on_answer(outcome)
        return outcome

    def give(self, method: str, params: Mapping[str, Any], patience: Any, on_answer: Any) -> Any:
        return self.request(method, params, patience=patience, on_answer=on_answer)

    @contextmanager
    def use(self) -> Iterator[Use]:
        yield Use(self)  # type: ignore[arg-type]

    async def kill(self) -> None:
        self.killed = True

    def count(self, method: str) -> int:
        return sum(asked == method for asked, _ in self.asked)

    async def until(self, method: str, count: int = 1) -> None:
        while self.count(method) < count:
            await self._changed.wait()


DEFAULTS: dict[str, Any] = {
    "model/list": {"data": []},
    "skills/list": {"data": []},
    "account/read": {"account": None, "requiresOpenaiAuth": False},
    "thread/turns/list": {"data": []},
    "thread/items/list": {"data": []},
    "turn/start": {"turn": {"id": "t1"}},
}


class Servers:
    def __init__(self) -> None:
        self.server = Server()

    async def get(self) -> Server:
        return self.server

    def route(self, server: Any, thread_id: str, session: Any) -> None:
        return None

    def unroute(self, server: Any, session: Any) -> None:
        return None

    async def look_again(self, server: Any, accept: Any) -> None:
        return None

    async def stop(self) -> None:
        return None

    def threads_of(self, server: Any, session: Any) -> list[str]:
        return [session.session_id]


class Scene:
    def __init__(self, session: CodexSession, servers: Servers) -> None:
        self.session = session
        self.servers = servers
        self.events: list[Any] = []
        self.ended = anyio.Event()
        self._changed = anyio.Event()

    @property
    def server(self) -> Server:
        return self.servers.server

    async def watch(self) -> None:
        async for event in self.session.events():
            self.events.append(event)
            self._changed.set()
            self._changed = anyio.Event()
        self.ended.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await self._changed.wait()

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def say(self, method: str, **params: Any) -> None:
        self.session.notified(method, {"threadId": self.session.session_id, **params})

    def active(self, turn_id: str = "own") -> None:
        self.say("thread/status/changed", status={"type": "active", "activeFlags": []})
        self.say("turn/started", turn={"id": turn_id})

    def stored(self, message_id: str) -> None:
        self.say("item/completed", item={"type": "userMessage", "id": "i", "clientId": message_id, "content": []})

    def completed(self, turn_id: str = "own", status: str = "completed") -> None:
        self.say("turn/completed", turn={"id": turn_id, "status": status, "items": [], "error": None})


def loaded(session_id: str, mode: str = "paginated") -> dict[str, Any]:
    thread = {"id": session_id, "cwd": "/", "status": {"type": "idle"}, "historyMode": mode, "preview": "p"}
    return {
        "thread": thread,
        "model": "m",
        "reasoningEffort": None,
        "approvalPolicy": "never",
        "sandbox": {"type": "readOnly"},
    }


@asynccontextmanager
async def playing(
    folder: Path, mode: str = "paginated", *, watched: bool = True, finish: float = 0.2
) -> AsyncIterator[Scene]:
    servers = Servers()
    session_id = str(uuid4())
    servers.server.outcomes["thread/resume"] = [loaded(session_id, mode)]
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            session = CodexSession(
                session_id,
                SessionSetup("/"),
                servers=servers,  # type: ignore[arg-type]
                account=Account(servers, {"CODEX_HOME": str(folder)}, unread=lambda: None),  # type: ignore[arg-type]
                env={"CODEX_HOME": str(folder)},
                patience=Patience(finish=finish, stop=0.01),
                tasks=tasks,
            )
            scene = Scene(session, servers)
            if watched:
                tasks.start_soon(scene.watch)
            await session.own()
            if watched:
                # That nothing runs in the background.
                await scene.until(lambda: scene.of(Foreground))
                scene.events.clear()
            yield scene
            # Nothing of the test's own works any more.
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await session.close()


@pytest.mark.parametrize("told", [True, False])
async def test_a_message_that_codex_has_is_stored_before_another_process_takes_its_place(
    tmp_path: Path, told: bool
) -> None:
    """Or is not waited for any longer."""
    async with playing(tmp_path) as scene:
        scene.session._host.thread = {**scene.session.thread, "path": str(tmp_path / "rollout.jsonl")}
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        over = anyio.Event()

        async def store() -> None:
            await scene.session.store(Use(scene.server))  # type: ignore[arg-type]
            over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store)
            await anyio.wait_all_tasks_blocked()
            assert not over.is_set()
            if told:
                scene.active("t1")
                scene.stored("m")
            await over.wait()
        # It runs, so it is stored by Codex itself.
        assert scene.server.count("thread/archive") == 0


async def test_a_message_waits_for_work_that_codex_began_by_itself(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene, anyio.create_task_group() as tasks:
        scene.active()
        tasks.start_soon(scene.session.submit, "m", PROMPT)
        await scene.server.until("account/read")
        await anyio.wait_all_tasks_blocked()
        assert scene.server.count("turn/start") == 0
        scene.completed()
        await scene.server.until("turn/start")
        scene.active("t1")
        scene.stored("m")
        scene.completed("t1")
        await scene.until(lambda: len(scene.of(Inserted)) == 1 and len(scene.of(Foreground)) >= 4)


async def test_whether_there_is_room_is_tried_once_when_the_message_can_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []
    monkeypatch.setattr(storage, "check_room", lambda *arguments: tried.append(arguments))
    async with playing(tmp_path) as scene, anyio.create_task_group() as tasks:
        scene.active()
        tasks.start_soon(scene.session.submit, "m", PROMPT)
        await scene.server.until("account/read")
        for _ in range(3):
            scene.say("item/agentMessage/delta", itemId="i", delta="word")
            await anyio.wait_all_tasks_blocked()
        assert not tried
        scene.completed()
        await scene.server.until("turn/start")
        assert len(tried) == 1


async def test_a_waiting_message_can_be_taken_back(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene, anyio.create_task_group() as tasks:
        scene.active()
        returned = anyio.Event()

        async def submit() -> None:
            await scene.session.submit("m", PROMPT)
            returned.set()

        tasks.start_soon(submit)
        await scene.server.until("account/read")
        assert await scene.session.withdraw("m")
        scene.completed()
        await returned.wait()
        await anyio.wait_all_tasks_blocked()
        assert scene.server.count("turn/start") == 0
        assert not scene.of(Inserted) + scene.of(Rejected)
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        assert not await scene.session.withdraw("m")


async def test_what_cannot_be_steered_is_given_after_its_end(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.server.outcomes["turn/start"] = [NOT_STEERABLE, NOT_STEERABLE, {"turn": {"id": "t1"}}]
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start", 2)
        scene.completed("review")
        await scene.server.until("turn/start", 3)
        scene.active("t1")
        scene.stored("m")
        await scene.until(lambda: scene.of(Inserted))


async def test_a_message_that_cannot_be_steered_can_be_taken_back(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.server.outcomes["turn/start"] = [NOT_STEERABLE] * 1000
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start", 2)
        while not await scene.session.withdraw("m"):
            await anyio.lowlevel.checkpoint()
        given = scene.server.count("turn/start")
        scene.say("turn/completed", turn={"id": "x", "status": "completed"})
        await anyio.wait_all_tasks_blocked()
        assert scene.server.count("turn/start") == given
        assert not scene.of(Rejected)


async def test_a_steer_that_vanished_is_given_again(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.server.outcomes["turn/start"] = [{"turn": {"id": "own"}}, {"turn": {"id": "t2"}}]
        # The turn began after the message was on its way.
        await scene.session.submit("m", PROMPT)
        scene.active("own")
        await scene.server.until("turn/start")
        await anyio.wait_all_tasks_blocked()
        scene.completed("own", "interrupted")
        await scene.server.until("turn/start", 2)
        scene.active("t2")
        scene.stored("m")
        scene.completed("t2")
        await scene.until(lambda: scene.of(Inserted))
        assert not scene.of(Rejected)


async def test_a_refused_message_is_rejected(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.server.outcomes["turn/start"] = [AppServerError(-32602, "Input exceeds the maximum length")]
        await scene.session.submit("m", PROMPT)
        await scene.until(lambda: scene.of(Foreground))
        (rejected,) = scene.of(Rejected)
        assert isinstance(rejected.error, PromptRefused)


async def test_a_legacy_thread_proves_by_its_list_alone(tmp_path: Path) -> None:
    async with playing(tmp_path, "legacy") as scene:
        turn = {"items": [{"type": "userMessage", "clientId": "m"}]}
        scene.server.outcomes["thread/items/list"] = [AppServerError(-32601, "no")] * 3
        scene.server.outcomes["thread/turns/list"] = [{"data": []}, {"data": []}, {"data": [turn]}]
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        scene.active("t1")
        scene.stored("m")
        await scene.server.until("thread/turns/list")
        await anyio.wait_all_tasks_blocked()
        assert not scene.of(Inserted)
        # It is written later than the end of its turn is told.
        scene.completed("t1")
        await scene.until(lambda: scene.of(Inserted))
        assert not scene.of(Rejected)


async def test_what_a_legacy_thread_never_lists_is_in_doubt(tmp_path: Path) -> None:
    async with playing(tmp_path, "legacy") as scene:
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        await anyio.wait_all_tasks_blocked()
        scene.active("t1")
        scene.stored("m")
        scene.completed("t1")
        await scene.until(lambda: scene.of(Rejected))
        (rejected,) = scene.of(Rejected)
        # Codex said that it is stored: what the core reads later decides.
        assert isinstance(rejected.error, HistoryUnreadable)
        assert not scene.of(Inserted)


async def test_a_legacy_message_that_a_death_interrupts_is_settled_once(tmp_path: Path) -> None:
    async with playing(tmp_path, "legacy") as scene:
        scene.server.outcomes["thread/items/list"] = [AppServerError(-32601, "no")] * 2
        late = Late({"data": []})
        scene.server.outcomes["thread/turns/list"] = [{"data": []}, late]
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        await anyio.wait_all_tasks_blocked()
        scene.active("t1")
        scene.stored("m")
        await scene.server.until("thread/turns/list", 2)
        scene.completed("t1")
        scene.servers.server = Server()
        scene.server.outcomes["thread/resume"] = [loaded(scene.session.session_id, "legacy")]
        settled = Late({"data": [{"item": {"type": "userMessage", "clientId": "m"}}]})
        scene.server.outcomes["thread/items/list"] = [settled]
        scene.session.died("Codex ended")
        await scene.server.until("thread/items/list")
        late.wanted.set()
        with anyio.move_on_after(0.5):
            await scene.until(lambda: scene.of(Rejected))
        settled.wanted.set()
        await scene.until(lambda: scene.of(Inserted))
        assert not scene.of(Rejected)


@pytest.mark.parametrize("stored", [True, False, None])
async def test_after_a_death_the_store_says_what_became_of_the_message(tmp_path: Path, stored: bool | None) -> None:
    async with playing(tmp_path) as scene:
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        scene.active("t1")
        scene.servers.server = Server()
        entry = {"item": {"type": "userMessage", "clientId": "m"}}
        scene.server.outcomes["thread/resume"] = [loaded(scene.session.session_id)]
        if stored is None:
            scene.server.outcomes["thread/items/list"] = [AppServerError(-32603, "disk")]
        else:
            scene.server.outcomes["thread/items/list"] = [{"data": [entry] if stored else []}]
        scene.session.died("Codex ended")
        await scene.until(lambda: any(event.state == "idle" for event in scene.of(Foreground)))
        assert scene.of(Foreground)[-1].stop_reason == "error"
        if stored:
            assert scene.of(Inserted)
        else:
            (rejected,) = scene.of(Rejected)
            assert isinstance(rejected.error, RuntimeDied if stored is False else HistoryUnreadable)


@pytest.mark.parametrize("taken_back", [False, True])
async def test_what_was_not_written_is_given_to_the_next_process(tmp_path: Path, taken_back: bool) -> None:
    async with playing(tmp_path) as scene:
        scene.server.outcomes["turn/start"] = [NOT_STEERABLE] * 1000
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start", 2)
        await anyio.wait_all_tasks_blocked()
        scene.servers.server = Server()
        scene.server.outcomes["thread/resume"] = [loaded(scene.session.session_id)]
        late = Late({"data": []})
        scene.server.outcomes["thread/turns/list"] = [late]
        scene.session.died("Codex ended")
        await scene.server.until("thread/turns/list")
        async with anyio.create_task_group() as tasks:
            if taken_back:
                assert await scene.session.withdraw("m")
                tasks.start_soon(scene.session.submit, "n", PROMPT)
            late.wanted.set()
        await scene.server.until("turn/start")
        await anyio.wait_all_tasks_blocked()
        assert scene.server.count("turn/start") == 1
        scene.active("t1")
        scene.stored("n" if taken_back else "m")
        await anyio.wait_all_tasks_blocked()
        assert [event.message_id for event in scene.of(Inserted)] == ["n" if taken_back else "m"]
        assert all(event.state == "running" for event in scene.of(Foreground)[-1:])
        scene.completed("t1")
        await scene.until(lambda: any(event.stop_reason == "end_turn" for event in scene.of(Foreground)))
        assert not scene.of(Rejected)


async def test_two_deaths_in_a_row_are_told_once(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        scene.active("t1")
        late = Late({"data": []})
        entry = {"item": {"type": "userMessage", "clientId": "m"}}
        for found in (late, {"data": [entry]}):
            scene.servers.server = Server()
            scene.server.outcomes["thread/resume"] = [loaded(scene.session.session_id)]
            scene.server.outcomes["thread/items/list"] = [found]
            scene.session.died("Codex ended")
            await scene.server.until("thread/items/list")
            # The first look is over when the second death comes, and nobody has heard of it.
            late.wanted.set()
        await scene.until(lambda: any(event.state == "idle" for event in scene.of(Foreground)))
        await anyio.wait_all_tasks_blocked()
        assert [event.stop_reason for event in scene.of(Foreground) if event.state == "idle"] == ["error"]
        assert scene.of(Inserted)
        assert not scene.of(Rejected)


async def test_a_turn_cannot_be_interrupted_before_it_began(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.server.outcomes["turn/interrupt"] = [AppServerError(-32600, "no active turn to interrupt"), {}]
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        scene.active("t1")
        scene.stored("m")
        await scene.session.interrupt()
        assert scene.server.count("turn/interrupt") == 2
        scene.completed("t1", "interrupted")
        await scene.until(lambda: any(e.stop_reason == "cancelled" for e in scene.of(Foreground)))


async def test_what_codex_begins_by_itself_is_not_stopped_with_what_was_cancelled(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.active("t1")
        await scene.session.interrupt()
        scene.session.notified("turn/started", {"threadId": "late child", "turn": {"id": "c1"}})
        await scene.server.until("turn/interrupt", 2)
        scene.session.notified("turn/completed", {"threadId": "late child", "turn": {"id": "c1", "status": "x"}})
        scene.completed("t1", "interrupted")
        scene.active("t2")
        scene.session.notified("turn/started", {"threadId": "child", "turn": {"id": "c2"}})
        await anyio.wait_all_tasks_blocked()
        assert scene.server.count("turn/interrupt") == 2


async def test_an_interrupt_waits_until_the_message_is_stored(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        scene.active("t1")
        await scene.session.interrupt()
        assert scene.server.count("turn/interrupt") == 0
        scene.stored("m")
        await scene.server.until("turn/interrupt")
        scene.completed("t1", "interrupted")
        await scene.until(lambda: any(e.stop_reason == "cancelled" for e in scene.of(Foreground)))
        assert scene.of(Inserted)


@pytest.mark.parametrize("method", ["model/list", "skills/list"])
async def test_an_answer_without_what_it_should_have_harms_nobody(tmp_path: Path, method: str) -> None:
    async with playing(tmp_path) as scene:
        await scene.server.until("skills/list")
        scene.session.died("Codex ended")
        scene.servers.server = Server()
        scene.server.outcomes["thread/resume"] = [loaded(scene.session.session_id)]
        scene.server.outcomes[method] = [{}]
        await scene.session.own()
        await scene.server.until("skills/list")
        await anyio.wait_all_tasks_blocked()
        assert [option["configId"] for option in scene.session.options()] == ["mode", "model", "collaboration_mode"]
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")


async def test_what_nobody_foresaw_ends_that_session_alone(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.server.outcomes["turn/start"] = [KeyError("surprise")]
        await scene.session.submit("m", PROMPT)
        # Its events end, by which the core knows.
        await scene.ended.wait()
        await scene.session.close()
        assert scene.server.count("thread/unsubscribe") == 1


NO_TURN = AppServerError(-32600, "no active turn to interrupt")


@pytest.mark.parametrize("outcome", [KeyError("surprise"), AppServerError(-32603, "busy"), {}])
async def test_a_session_that_cannot_be_stopped_leaves_others_their_process(tmp_path: Path, outcome: Any) -> None:
    async with playing(tmp_path) as scene:
        scene.active()
        scene.server.outcomes["turn/interrupt"] = [outcome] * 1000
        await scene.session.close()
        assert not scene.server.killed
        # It answers, so it lives.
        assert scene.server.count("thread/loaded/list") == 1
        assert scene.server.count("thread/unsubscribe") == 1
        assert scene.of(Foreground)[-1].stop_reason == "error"


async def test_what_may_have_been_stored_is_settled_by_the_end_of_the_process(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        scene.active("t1")
        await scene.session.close()
        assert scene.server.killed


async def test_the_end_that_codex_left_out_is_told(tmp_path: Path) -> None:
    """Codex says that nothing runs, and that is asked for as long as a turn may take to begin."""
    async with playing(tmp_path) as scene:
        scene.active()
        scene.server.outcomes["turn/interrupt"] = [NO_TURN] * 1000
        await scene.session.interrupt()
        assert scene.server.count("turn/interrupt") > 2
        await scene.until(lambda: any(e.stop_reason == "cancelled" for e in scene.of(Foreground)))
        await scene.session.close()
        assert not scene.server.killed


async def test_a_stopped_turn_whose_end_was_left_out_is_asked_for_again(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.active()
        scene.server.outcomes["turn/interrupt"] = [{}, *[NO_TURN] * 1000]
        await scene.session.interrupt()
        await scene.until(lambda: any(e.stop_reason == "cancelled" for e in scene.of(Foreground)))


async def test_a_prompt_without_a_turn_is_answered_when_it_is_cancelled(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.server.outcomes["turn/interrupt"] = [NO_TURN] * 1000
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        await anyio.wait_all_tasks_blocked()
        await scene.session.interrupt()
        await scene.until(lambda: scene.of(Rejected))
        assert isinstance(scene.of(Rejected)[0].error, RequestCancelled)


async def test_the_turn_that_runs_is_stopped_whatever_its_id(tmp_path: Path) -> None:
    """Codex says by which one it knows the turn."""
    async with playing(tmp_path) as scene:
        scene.active("inner")
        another = AppServerError(-32600, "expected active turn id inner but found outer")
        scene.server.outcomes["turn/interrupt"] = [another, {}]
        await scene.session.interrupt()
        asked = [params["turnId"] for method, params in scene.server.asked if method == "turn/interrupt"]
        assert asked == ["inner", "outer"]
        scene.completed("outer", "interrupted")
        await scene.until(lambda: any(e.stop_reason == "cancelled" for e in scene.of(Foreground)))


@pytest.mark.parametrize("early", [False, True])
async def test_an_error_without_a_turn_ends_a_command(tmp_path: Path, early: bool) -> None:
    async with playing(tmp_path) as scene:
        late = Late({"turn": {"id": "r"}})
        scene.server.outcomes["review/start"] = [late]
        await scene.session.submit("m", [{"type": "text", "text": "/review-branch main"}])
        await scene.server.until("review/start")

        def fail() -> None:
            scene.say("thread/status/changed", status={"type": "systemError"})
            scene.say("error", turnId="r", willRetry=False, error={"message": "no repository"})

        if early:
            fail()
        late.wanted.set()
        await scene.until(lambda: scene.of(Inserted))
        if not early:
            fail()
        await scene.until(lambda: any(e.stop_reason == "error" for e in scene.of(Foreground)))
        assert scene.of(Foreground)[-1].error["message"] == "no repository"


async def test_an_error_without_a_turn_refuses_a_prompt(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        await anyio.wait_all_tasks_blocked()
        scene.say("error", turnId="t1", willRetry=False, error={"message": "no such model"})
        await scene.until(lambda: scene.of(Rejected))
        assert str(scene.of(Rejected)[0].error) == "no such model"
        # What it left is looked for before the next one.
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start", 2)
        assert scene.server.count("thread/turns/list") == 2


async def test_a_message_that_comes_again_under_its_id_is_written_once_it_is_submitted(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        await scene.session.submit("m", PROMPT)
        assert await scene.session.withdraw("m")
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        await anyio.wait_all_tasks_blocked()
        assert scene.server.count("turn/start") == 1
        scene.active("t1")
        scene.stored("m")
        await scene.until(lambda: scene.of(Inserted))


async def child(scene: Scene) -> str:
    """A subagent that runs a command; its session."""
    call = {"type": "collabAgentToolCall", "id": "spawn", "tool": "spawnAgent", "status": "completed"}
    scene.say("item/completed", item={**call, "receiverThreadIds": ["child"], "prompt": "Look", "agentsStates": {}})
    scene.say("turn/started", threadId="child", turn={"id": "c1"})
    scene.say("item/started", threadId="child", turnId="c1", item=COMMAND)
    return f"{scene.session.session_id}.child"


COMMAND = {
    "type": "commandExecution",
    "id": "x",
    "command": "sleep",
    "cwd": "/",
    "processId": "1",
    "status": "inProgress",
}


@pytest.mark.parametrize("idle", [False, True])
async def test_the_end_of_a_cancelled_subagent_is_told_after_its_commands_and_before_the_roots(
    tmp_path: Path, idle: bool
) -> None:
    async with playing(tmp_path, finish=2) as scene, anyio.create_task_group() as tasks:
        scene.active()
        child_id = await child(scene)
        if idle:
            scene.completed()
        await anyio.wait_all_tasks_blocked()
        scene.events.clear()
        scene.server.outcomes["thread/backgroundTerminals/terminate"] = [{"terminated": True}]
        tasks.start_soon(scene.session.interrupt)
        await scene.server.until("turn/interrupt", 1 if idle else 2)
        if not idle:
            scene.completed("own", "interrupted")
        scene.say("turn/completed", threadId="child", turn={"id": "c1", "status": "interrupted"})
        await scene.server.until("thread/backgroundTerminals/terminate")
        await anyio.wait_all_tasks_blocked()
        assert not scene.of(Foreground)
        scene.say("item/completed", threadId="child", turnId="c1", item={**COMMAND, "status": "failed", "exitCode": -1})
        await scene.until(lambda: len(scene.of(Foreground)) >= 2)
        terminal, call, ended, root = scene.events
        assert "exitStatus" in terminal.update
        assert call.update["status"] == "cancelled"
        assert (ended.session_id, ended.state, ended.stop_reason) == (child_id, "idle", "cancelled")
        assert (root.session_id, root.state) == (scene.session.session_id, "idle")
        assert root.stop_reason == (None if idle else "cancelled")
        assert root.background == []


async def test_a_command_that_ended_without_a_word_is_told_from_one_that_has_its_id(tmp_path: Path) -> None:
    """Codex lists the ids of the items, which are those of the model service, and no turns."""
    async with playing(tmp_path) as scene:
        first, second = ({"itemId": "x", "processId": number} for number in "12")
        scene.server.outcomes["thread/backgroundTerminals/list"] = [{"data": [first]}, {"data": [second]}]
        for number in "12":
            scene.active(f"t{number}")
            scene.say("item/started", turnId=f"t{number}", item={**COMMAND, "processId": number})
            scene.completed(f"t{number}", "interrupted")
            await scene.server.until("thread/backgroundTerminals/list", int(number))
        left = [{"type": "terminal", "terminalId": "x.t2"}]
        await scene.until(lambda: scene.of(Foreground)[-1].background == left)
        await anyio.wait_all_tasks_blocked()
        ended = [event.update for event in scene.of(Update) if event.update.get("status") == "cancelled"]
        assert [update["toolCallId"] for update in ended] == ["x.t1"]
        assert scene.of(Foreground)[-1].background == left


async def test_a_command_without_a_known_process_runs_as_long_as_it_is_listed(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        listed = {"itemId": "x", "processId": "1"}
        scene.server.outcomes["thread/backgroundTerminals/list"] = [{"data": [listed]}, {"data": []}]
        scene.active("t1")
        scene.say("item/started", turnId="t1", item={**COMMAND, "processId": None})
        scene.say("item/commandExecution/outputDelta", turnId="t1", itemId="x", delta="It runs.")
        for number, left in ((1, [{"type": "terminal", "terminalId": "x.t1"}]), (2, [])):
            scene.completed(f"t{number}", "interrupted")
            await scene.server.until("thread/backgroundTerminals/list", number)
            await anyio.wait_all_tasks_blocked()
            assert scene.of(Foreground)[-1].background == left


async def test_a_subagent_that_fails_before_it_is_a_turn_ends(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.active()
        call = {"type": "collabAgentToolCall", "id": "spawn", "tool": "spawnAgent", "status": "completed"}
        scene.say("item/completed", item={**call, "receiverThreadIds": ["child"], "prompt": "Look", "agentsStates": {}})
        scene.say("error", threadId="child", turnId="c1", willRetry=False, error={"message": "no such model"})
        await scene.until(lambda: any(event.state == "idle" for event in scene.of(Foreground)))
        (ended,) = [event for event in scene.of(Foreground) if event.state == "idle"]
        assert ended.session_id == f"{scene.session.session_id}.child"
        assert ended.error["message"] == "no such model"


class Store:
    """What is stored, in place of a runtime."""

    def __init__(self, ids: set[str]) -> None:
        self.ids = ids

    async def message_ids(self, session_id: str) -> set[str]:
        return set(self.ids)


class Request:
    """A prompt's request, and its answer."""

    on_cancel: Any = None

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def respond(self, result: Any) -> None:
        self.answers.append(result)

    fail = respond


@pytest.mark.parametrize("stored", [True, False])
async def test_the_prompt_of_a_session_that_fails_is_answered_by_what_is_stored(tmp_path: Path, stored: bool) -> None:
    async with playing(tmp_path, watched=False) as scene:
        scene.server.outcomes["turn/start"] = [KeyError("surprise")]
        runtime: Any = Store({"m"} if stored else set())
        request: Any = Request()
        session = Session(runtime, scene.session, SessionSetup("/"), fresh=True)
        async with anyio.create_task_group() as tasks:
            await tasks.start(session.run)
            session.pump.take(request, "m", PROMPT, keyed=True)
        (answer,) = request.answers
        assert answer == {"messageId": "m"} if stored else isinstance(answer, RuntimeDied)
        assert scene.session.closed


async def test_a_thread_that_codex_unloads_is_loaded_again(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        scene.say("thread/closed")
        scene.server.outcomes["thread/resume"] = [loaded(scene.session.session_id)]
        await scene.session.submit("m", PROMPT)
        await scene.server.until("turn/start")
        assert scene.server.count("thread/resume") == 2


async def test_another_writer_is_waited_for_shortly(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        busy = AppServerError(-32600, "thread x already has an active writer")
        scene.session.died("Codex ended")
        scene.server.outcomes["thread/resume"] = [busy, busy, loaded(scene.session.session_id)]
        await scene.session.own()
        scene.session.died("Codex ended")
        scene.server.outcomes["thread/resume"] = [busy] * 1000
        with pytest.raises(SessionInUse):
            await scene.session.own(patience=0)


async def test_a_thread_that_is_still_being_closed_is_waited_for(tmp_path: Path) -> None:
    """Codex takes seconds for that when it cannot write (measured)."""
    async with playing(tmp_path) as scene:
        closing = AppServerError(-32603, "thread x is closing; retry thread/resume after the thread is closed")
        scene.session.died("Codex ended")
        scene.server.outcomes["thread/resume"] = [closing, closing, loaded(scene.session.session_id)]
        await scene.session.own(patience=0)
        assert scene.session.loaded


async def load_given_up(scene: Scene) -> Late:
    """A load that nobody waits for any more; its answer comes when the test wants it."""
    scene.session.died("Codex ended")
    late = Late(loaded(scene.session.session_id))
    scene.server.outcomes["thread/resume"] = [late]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.session.own)
        await scene.server.until("thread/resume", 2)
        tasks.cancel_scope.cancel()
    return late


async def test_a_load_that_nobody_waits_for_any_more_is_undone(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        late = await load_given_up(scene)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.session.close)
            await anyio.wait_all_tasks_blocked()
            late.wanted.set()
        assert scene.server.count("thread/unsubscribe") == 1


async def test_a_load_that_is_answered_after_the_end_is_undone(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        late = await load_given_up(scene)
        await scene.session.close()
        assert scene.server.count("thread/unsubscribe") == 0
        late.wanted.set()
        await scene.server.until("thread/unsubscribe")


async def test_a_load_is_asked_for_once(tmp_path: Path) -> None:
    async with playing(tmp_path) as scene:
        late = await load_given_up(scene)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.session.own)
            await anyio.wait_all_tasks_blocked()
            late.wanted.set()
        assert scene.server.count("thread/resume") == 2


async def test_a_resume_tells_the_commands_once(tmp_path: Path) -> None:
    servers = Servers()
    session_id = str(uuid4())
    servers.server.outcomes["thread/resume"] = [loaded(session_id)]
    async with runtime_over(servers, tmp_path) as runtime:
        session = await runtime.resume(session_id, SessionSetup("/"))
        (kept,) = [entry for entry in session.snapshot() if entry["sessionUpdate"] == "available_commands_update"]
        assert kept["availableCommands"]
        events = session.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.close)
            told = [event async for event in events]
        assert not [event for event in told if isinstance(event, Update)]
        assert [event.state for event in told if isinstance(event, Foreground)] == ["idle"]


WARNING = {"summary": "A word is misspelt", "details": None, "path": "/config.toml"}


@asynccontextmanager
async def runtime_over(servers: Servers, folder: Path) -> AsyncIterator[CodexRuntime]:
    runtime: Any = CodexRuntime({"CODEX_PATH": "/nowhere/codex", "CODEX_HOME": str(folder)})
    with anyio.fail_after(10):
        async with runtime:
            runtime._servers = servers
            runtime._account = Account(servers, {"CODEX_HOME": str(folder)}, unread=runtime._warnings.unread)  # type: ignore[arg-type]
            yield runtime


async def notices(session: CodexSession) -> list[str]:
    """The titles of the notices that a session has to tell, which is closed then."""
    events = session.events()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.close)
        told = [event.update async for event in events if isinstance(event, Update)]
    return [update["title"] for update in told if update["sessionUpdate"] == "notice"]


async def test_the_first_session_hears_what_was_said_before_it(tmp_path: Path) -> None:
    servers = Servers()
    ids = [str(uuid4()) for _ in range(3)]
    servers.server.outcomes["thread/resume"] = [loaded(session_id) for session_id in ids]
    servers.server.outcomes["thread/read"] = [loaded(ids[0])]
    async with runtime_over(servers, tmp_path) as runtime:
        runtime._heard("configWarning", WARNING, set())
        # One that is only read tells nobody.
        assert await runtime.message_ids(ids[0]) == set()
        first, second = [await runtime.resume(session_id, SessionSetup("/")) for session_id in ids[1:]]
        assert await notices(first) == ["A word is misspelt"]
        assert await notices(second) == []


async def test_a_session_hears_what_was_said_while_it_was_opened(tmp_path: Path) -> None:
    servers = Servers()
    session_id = str(uuid4())
    late = Late(loaded(session_id))
    servers.server.outcomes["thread/resume"] = [late]
    opened: list[CodexSession] = []
    async with runtime_over(servers, tmp_path) as runtime:

        async def resume() -> None:
            opened.append(await runtime.resume(session_id, SessionSetup("/")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resume)
            await servers.server.until("thread/resume")
            runtime._heard("configWarning", WARNING, set())
            late.wanted.set()
        assert await notices(opened[0]) == ["A word is misspelt"]


MISTYPED = 'invalid type: string "sk-1", expected a map'
CUT = 'invalid type: string "…", expected a map'


async def test_no_value_of_the_configuration_is_told(tmp_path: Path) -> None:
    servers = Servers()
    ids = [str(uuid4()) for _ in range(2)]
    servers.server.outcomes["account/read"] = [{"account": None, "requiresOpenaiAuth": True}] * 2
    servers.server.outcomes["thread/start"] = [AppServerError(-32600, f"failed to load configuration: {MISTYPED}")]
    servers.server.outcomes["thread/resume"] = [
        AppServerError(-32600, f"failed to load configuration: {MISTYPED}"),
        loaded(ids[1]),
    ]
    async with runtime_over(servers, tmp_path) as runtime:
        unread = {"summary": "Not read; using defaults.", "details": MISTYPED, "path": "/config.toml"}
        runtime._heard("configWarning", unread, set())
        with pytest.raises(AuthRequired) as refused:
            await runtime.new(SessionSetup("/"))
        assert str(refused.value) == f"Not signed in to Codex. Not read; using defaults. {CUT}"
        servers.server.outcomes["account/read"] = [{"account": None, "requiresOpenaiAuth": False}]
        with pytest.raises(AppServerError) as failed:
            await runtime.new(SessionSetup("/"))
        assert str(failed.value) == f"failed to load configuration: {CUT}"
        with pytest.raises(AppServerError) as failed:
            await runtime.resume(ids[0], SessionSetup("/"))
        assert str(failed.value) == f"failed to load configuration: {CUT}"
        runtime._heard("configWarning", {"summary": MISTYPED, "details": None}, set())
        assert await notices(await runtime.resume(ids[1], SessionSetup("/"))) == [CUT]


async def test_no_text_of_codex_is_logged_when_it_is_not_ready_ahead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mocker: MockerFixture
) -> None:
    caplog.set_level("DEBUG")
    servers = Servers()
    mocker.patch.object(servers, "get", side_effect=RuntimeMissing("what Codex wrote, sk-1"))
    async with runtime_over(servers, tmp_path) as runtime:
        await runtime.warm_up()
    assert "sk-1" not in caplog.text
    assert "RuntimeMissing" in caplog.text


async def test_a_warning_without_details_is_named_without_them(tmp_path: Path) -> None:
    servers = Servers()
    servers.server.outcomes["account/read"] = [{"account": None, "requiresOpenaiAuth": True}] * 2
    async with runtime_over(servers, tmp_path) as runtime:
        runtime._heard("configWarning", WARNING, set())
        with pytest.raises(AuthRequired) as refused:
            await runtime.new(SessionSetup("/"))
        assert str(refused.value) == "Not signed in to Codex. A word is misspelt"
