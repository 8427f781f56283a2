"""The app-server's client and its routes, over a process that the test plays."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import pytest

from sayagain.errors import RuntimeDied, RuntimeFault, RuntimeTimeout
from sayagain.processes.spawn import ExitStatus
from sayagain_codex import app_server, launch
from sayagain_codex.app_server import AppServer, AppServerError, Leaving, Use
from sayagain_codex.launch import Launcher
from sayagain_codex.patience import Patience
from sayagain_codex.server import Servers


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Process:
    """Both pipes of a process, and what became of it."""

    runtime_pid = 1
    stderr_tail = ""

    def __init__(self) -> None:
        self._out, self.stdout = anyio.create_memory_object_stream[bytes](100)
        self.stdin, self._in = anyio.create_memory_object_stream[bytes](100)
        self.killed = False

    @property
    def status(self) -> ExitStatus | None:
        return ExitStatus(None, 9) if self.killed else None

    async def kill(self) -> ExitStatus:
        self.killed = True
        self._out.close()
        return ExitStatus(None, 9)

    async def aclose(self) -> None:
        for stream in (self._out, self.stdout, self.stdin, self._in):
            stream.close()

    async def running(self) -> Process:
        return self

    # The test's side.

    async def read(self) -> Any:
        return json.loads(await self._in.receive())

    def say(self, *messages: Mapping[str, Any]) -> None:
        self._out.send_nowait(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def say_raw(self, data: bytes) -> None:
        self._out.send_nowait(data)

    async def answer(self, result: Any) -> dict[str, Any]:
        request: dict[str, Any] = await self.read()
        self.say({"id": request["id"], "result": result})
        return request


class Log:
    """A session."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "bad":
            raise ValueError(method)
        self.heard.append((method, params))

    def asked(self, request_id: Any, method: str, params: Mapping[str, Any]) -> None:
        self.heard.append((request_id, method, params))

    def announced(self, method: str, params: Mapping[str, Any]) -> None:
        self.heard.append((method, params))

    works = False

    async def store(self, use: Any) -> None:
        self.heard.append(use)

    def died(self, detail: str) -> None:
        self.heard.append(detail)


class Listening:
    """The listener of one app-server."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def notified(self, _: AppServer, method: str, params: Mapping[str, Any]) -> None:
        self._log.notified(method, params)

    def asked(self, _: AppServer, request_id: Any, method: str, params: Mapping[str, Any]) -> None:
        self._log.asked(request_id, method, params)


@asynccontextmanager
async def running(log: Log, patience: float = 30.0) -> AsyncIterator[tuple[Process, AppServer]]:
    process = Process()
    client = AppServer(process, Listening(log), Patience(patience))  # type: ignore[arg-type]
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.run)
            yield process, client
            await client.kill()


class Call:
    """A request that runs beside the test."""

    def __init__(self) -> None:
        self.outcome: Any = None
        self.done = anyio.Event()

    async def run(self, client: AppServer | Use, method: str, **more: Any) -> None:
        try:
            self.outcome = await client.request(method, {"a": 1}, **more)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.outcome = error
        self.done.set()


@pytest.fixture
def log() -> Log:
    return Log()


async def test_answers_meet_their_requests_and_keep_the_order_of_the_pipe(log: Log) -> None:
    async with running(log) as (process, client), anyio.create_task_group() as tasks:
        calls = [Call(), Call()]
        for call in calls:
            tasks.start_soon(lambda call=call: call.run(client, "m", on_answer=log.heard.append))
        first, second = await process.read(), await process.read()
        assert first.keys() == {"id", "method", "params"}
        process.say(
            {"id": second["id"], "result": {"n": 2}},
            {"method": "said", "params": {}, "emittedAtMs": 1},
            {"id": first["id"], "error": {"code": -32600, "message": "no", "data": 3}},
        )
        for call in calls:
            await call.done.wait()
        outcomes = [call.outcome for call in calls]
        assert {"n": 2} in outcomes
        (error,) = (outcome for outcome in outcomes if isinstance(outcome, AppServerError))
        assert (error.rpc_code, error.message) == (-32600, "no")
        assert log.heard == [{"n": 2}, ("said", {})]


async def test_what_is_not_understood_stops_nobody(log: Log) -> None:
    async with running(log) as (process, client), anyio.create_task_group() as tasks:
        process.say_raw(b"no json\n[1]\n\n")
        process.say({"id": 99, "result": {}}, {"method": "bad"}, {"method": "good"}, {"id": 7, "method": "ask"})
        call = Call()
        tasks.start_soon(call.run, client, "m")
        await process.answer({})
        await call.done.wait()
        assert log.heard == [("good", {}), (7, "ask", {})]
        await client.reply(7, {"decision": "accept"})
        assert await process.read() == {"id": 7, "result": {"decision": "accept"}}
        await client.refuse(8, -32601, "no")
        assert await process.read() == {"id": 8, "error": {"code": -32601, "message": "no"}}


async def test_a_line_that_is_too_long_is_skipped(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_server, "MAX_MESSAGE", 100)
    async with running(log) as (process, client), anyio.create_task_group() as tasks:
        process.say({"method": "long", "params": {"text": "x" * 200}}, {"method": "short"})
        call = Call()
        tasks.start_soon(call.run, client, "m")
        await process.answer({})
        await call.done.wait()
        assert log.heard == [("short", {})]


async def test_a_request_without_an_answer_ends_the_process(log: Log) -> None:
    async with running(log, patience=0.01) as (process, client):
        with pytest.raises(RuntimeTimeout):
            await client.request("m")
        assert process.killed
        with pytest.raises(RuntimeDied):
            await client.request("m")


@pytest.mark.parametrize("ends", [False, True])
async def test_who_waits_for_an_answer_is_waited_for(log: Log, ends: bool) -> None:
    """And so are requests that belong together; not when there is nobody left to answer."""
    async with running(log) as (process, client), anyio.create_task_group() as tasks:
        call, unused = Call(), anyio.Event()

        async def wait() -> None:
            await client.unused()
            unused.set()

        with client.use():
            tasks.start_soon(call.run, client, "m")
            asked = await process.read()
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            if ends:
                await process.kill()
                await unused.wait()
                return
            process.say({"id": asked["id"], "result": {}})
            await call.done.wait()
            await anyio.wait_all_tasks_blocked()
            assert not unused.is_set()
        await unused.wait()


async def test_who_leaves_is_given_only_what_was_begun(log: Log) -> None:
    async with running(log) as (process, client), anyio.create_task_group() as tasks:
        with client.use() as use:
            client.leave()
            with pytest.raises(Leaving):
                await client.request("m")
            with pytest.raises(Leaving), client.use():
                raise AssertionError
            call = Call()
            tasks.start_soon(call.run, use, "begun")
            assert (await process.answer({"a": 1}))["method"] == "begun"
            await call.done.wait()
            assert call.outcome == {"a": 1}


async def test_more_than_one_can_wait_until_nobody_uses_it(log: Log) -> None:
    async with running(log) as (_, client), anyio.create_task_group() as tasks:
        with client.use():
            for _ in range(2):
                tasks.start_soon(client.unused)
                await anyio.wait_all_tasks_blocked()


@pytest.mark.parametrize("result", [[1], "text", 7])
async def test_an_answer_that_is_no_object_is_a_fault_of_codex(log: Log, result: Any) -> None:
    async with running(log) as (process, client), anyio.create_task_group() as tasks:
        call = Call()
        tasks.start_soon(call.run, client, "m")
        await process.answer(result)
        await call.done.wait()
        assert type(call.outcome) is RuntimeFault


async def test_the_end_of_the_process_answers_what_waits(log: Log) -> None:
    async with running(log) as (process, client), anyio.create_task_group() as tasks:
        call = Call()
        tasks.start_soon(call.run, client, "m")
        await process.read()
        await process.kill()
        await call.done.wait()
        assert isinstance(call.outcome, RuntimeDied)
        assert not client.running


# Routes.


@asynccontextmanager
async def serving(monkeypatch: pytest.MonkeyPatch, log: Log) -> AsyncIterator[tuple[Process, Servers, AppServer]]:
    """One started process of a :class:`Servers`."""
    process = Process()

    async def begin(*_: Any, **__: Any) -> Process:
        return process

    monkeypatch.setattr(launch, "begin", begin)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            servers = Servers(
                Launcher({"CODEX_PATH": "/bin/sh", "PATH": "/bin"}),
                Patience(),
                tasks,
                starting=lambda: None,
                heard=lambda method, params, _: log.notified(method, params),
            )
            got: list[AppServer] = []

            async def get() -> None:
                got.append(await servers.get())

            async with anyio.create_task_group() as starting:
                starting.start_soon(get)
                await process.answer({"userAgent": "sayagain/0.163.0"})
                assert await process.read() == {"method": "initialized"}
            yield process, servers, got[0]
            await got[0].kill()


async def settle(process: Process, client: AppServer) -> None:
    """Everything that was said before has been taken."""
    async with anyio.create_task_group() as tasks:
        call = Call()
        tasks.start_soon(call.run, client, "sync")
        await process.answer({})


async def test_messages_are_routed_by_thread(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    one, two = Log(), Log()
    async with serving(monkeypatch, log) as (process, servers, client):
        servers.route(client, "a", one)
        servers.route(client, "b", two)
        process.say(
            {"method": "x", "params": {"threadId": "a"}},
            {"method": "y", "params": {"thread": {"id": "b"}}},
            {"id": 5, "method": "item/fileChange/requestApproval", "params": {"threadId": "b"}},
            {"method": "account/updated", "params": {}},
        )
        await settle(process, client)
        assert one.heard == [("x", {"threadId": "a"}), ("account/updated", {})]
        assert [entry[:2] for entry in two.heard[:2]] == [
            ("y", {"thread": {"id": "b"}}),
            (5, "item/fileChange/requestApproval"),
        ]
        assert log.heard == [("account/updated", {})]
        process.say({"id": 6, "method": "currentTime/read", "params": {"threadId": "a"}})
        assert (await process.read())["error"]["code"] == -32601


async def test_a_child_is_claimed_by_its_root(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    root = Log()
    async with serving(monkeypatch, log) as (process, servers, client):
        servers.route(client, "root", root)
        process.say({"method": "x", "params": {"threadId": "grandchild"}})
        assert (await process.answer({"thread": {"parentThreadId": "child"}}))["params"] == {"threadId": "grandchild"}
        process.say({"method": "y", "params": {"threadId": "grandchild"}})
        assert (await process.answer({"thread": {"parentThreadId": "root"}}))["params"] == {"threadId": "child"}
        await settle(process, client)
        assert [method for method, _ in root.heard] == ["x", "y"]
        assert servers.threads_of(client, root) == ["root", "grandchild"]


async def test_what_fails_beside_the_sessions_ends_codex_and_not_the_agent(
    monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    session = Log()
    async with serving(monkeypatch, log) as (process, servers, client):
        servers.route(client, "a", session)

        async def surprise(*_: Any, **__: Any) -> Any:
            raise KeyError("surprise")

        monkeypatch.setattr(client, "give", surprise)
        process.say({"method": "x", "params": {"threadId": "child"}})
        await client.gone.wait()
        assert session.heard == ["Codex ended (signal SIGKILL)"]


async def test_a_reader_that_fails_ends_codex_and_not_the_agent(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    session = Log()
    async with serving(monkeypatch, log) as (process, servers, client):
        servers.route(client, "a", session)

        def surprise(*_: Any) -> Any:
            raise OSError("surprise")

        monkeypatch.setattr(client, "_take", surprise)
        process.say({"method": "x"})
        await client.gone.wait()
        assert session.heard == ["Codex ended (signal SIGKILL)"]


async def test_a_session_that_fails_keeps_no_other_from_its_message(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    class Broken(Log):
        def announced(self, method: str, params: Mapping[str, Any]) -> None:
            raise KeyError(method)

        def died(self, detail: str) -> None:
            raise KeyError(detail)

    sessions = [Log(), Broken(), Log()]
    async with serving(monkeypatch, log) as (process, servers, client):
        for session in sessions:
            servers.route(client, str(id(session)), session)
        process.say({"method": "x"})
        await settle(process, client)
        await process.kill()
        await client.gone.wait()
        assert [session.heard for session in sessions if type(session) is Log] == [
            [("x", {}), "Codex ended (signal SIGKILL)"]
        ] * 2


async def test_who_asked_hears_of_an_answer_that_nobody_understands(log: Log) -> None:
    def surprise(_: Any) -> None:
        raise KeyError("surprise")

    async with running(log) as (process, client), anyio.create_task_group() as tasks:
        call = Call()
        tasks.start_soon(lambda: call.run(client, "m", on_answer=surprise))
        await process.answer({})
        await call.done.wait()
        assert isinstance(call.outcome, RuntimeFault)


async def test_a_thread_of_nobody_is_forgotten(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    async with serving(monkeypatch, log) as (process, servers, client):
        ask = "item/fileChange/requestApproval"
        process.say(
            {"method": "x", "params": {"threadId": "odd"}}, {"id": 3, "method": ask, "params": {"threadId": "odd"}}
        )
        await process.answer({"thread": {"parentThreadId": None}})
        assert (await process.read())["error"]["code"] == -32601
        process.say({"id": 4, "method": ask, "params": {"threadId": "odd"}})
        assert (await process.read())["id"] == 4
        # Until somebody opens it.
        session = Log()
        servers.route(client, "odd", session)
        process.say({"method": "y", "params": {"threadId": "odd"}})
        await settle(process, client)
        assert session.heard == [("y", {"threadId": "odd"})]


async def test_every_session_is_told_of_the_death_once(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    session = Log()
    async with serving(monkeypatch, log) as (process, servers, client):
        servers.route(client, "a", session)
        servers.route(client, "a.child", session)
        await process.kill()
        await client.gone.wait()
        assert session.heard == ["Codex ended (signal SIGKILL)"]
        assert servers.threads_of(client, session) == []
