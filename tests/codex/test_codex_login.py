"""Signing in and out while other things go on: on the real Codex."""

from __future__ import annotations

import json
import threading
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from sayagain.errors import AuthRequired, RuntimeDied, RuntimeFault
from sayagain.processes.spawn import ExitStatus
from sayagain.protocol.lines import TooLong
from sayagain.runtime.events import Foreground, Inserted, RuntimeEvent
from sayagain.runtime.history import HistoryEntry
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.responses_api import ResponsesService
from sayagain.testing.responses_script import Hold, Script, Step, Text
from sayagain_codex import pages
from sayagain_codex.app_server import AppServer, AppServerError, Use
from sayagain_codex.record import Record
from sayagain_codex.runtime import CodexRuntime
from support_codex import codex_environment, idle, outcome

pytestmark = pytest.mark.real

KEY = "sk-never-on-disk"


class Held:
    """What is about to be done to an app-server, until the test lets it."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.released = anyio.Event()

    async def here(self) -> None:
        self.reached.set()
        await self.released.wait()


@pytest.fixture
def env(folder: Path, service: ResponsesService) -> dict[str, str]:
    return codex_environment(folder, service, auth=True, OPENAI_API_KEY=KEY)


@pytest.fixture
async def runtime(env: dict[str, str]) -> AsyncIterator[CodexRuntime]:
    with anyio.fail_after(60):
        async with CodexRuntime(env) as runtime:
            yield runtime


def stored(env: dict[str, str]) -> list[str]:
    """Files that hold the key."""
    home = Path(env["CODEX_HOME"])
    return [str(path) for path in home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


ID = "0190c0de-0000-7000-8000-00000000000a"
TEXT = [{"type": "text", "text": "hello"}]


async def settle() -> None:
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("has_own", [False, True])
async def test_a_key_goes_to_no_process_that_would_store_it(
    runtime: CodexRuntime, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, has_own: bool
) -> None:
    """The key comes while Codex is started ahead, which is when editors send it."""
    login = Path(env["CODEX_HOME"], "auth.json")
    before = json.dumps({"OPENAI_API_KEY": "sk-of-the-user", "auth_mode": "apikey"}) if has_own else None
    if before is not None:
        login.write_text(before, encoding="utf-8")
    held, notify = Held(), AppServer.notify

    async def notify_later(server: AppServer, method: str) -> None:
        await notify(server, method)
        await held.here()

    monkeypatch.setattr(AppServer, "notify", notify_later)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.warm_up)
        await held.reached.wait()
        tasks.start_soon(runtime.login, "api-key", {})
        await settle()
        held.released.set()
    assert (await runtime.auth_status())["state"] == "authenticated"
    assert stored(env) == []
    assert (login.read_text(encoding="utf-8") if login.exists() else None) == before


async def test_a_stored_login_that_cannot_be_used_is_none(runtime: CodexRuntime, own_login: Path, cwd: str) -> None:
    own_login.write_text("{}", encoding="utf-8")
    assert (await runtime.auth_status())["state"] == "unauthenticated"
    with pytest.raises(AuthRequired, match=rf"{own_login} holds no login that it can use \(.*plan type"):
        await runtime.new(SessionSetup(cwd=cwd))
    await runtime.login("api-key", {})
    await (await runtime.new(SessionSetup(cwd=cwd))).close()


async def test_a_logout_forgets_the_stored_login_too(runtime: CodexRuntime, own_login: Path) -> None:
    await runtime.login("api-key", {})
    await runtime.logout()
    assert not own_login.exists()
    assert (await runtime.auth_status())["state"] == "unauthenticated"


@pytest.fixture
def own_login(env: dict[str, str]) -> Path:
    """The user's, as Codex stores it."""
    login = Path(env["CODEX_HOME"], "auth.json")
    login.write_text(json.dumps({"OPENAI_API_KEY": "sk-of-the-user", "auth_mode": "apikey"}), encoding="utf-8")
    return login


async def a_stored_one(runtime: CodexRuntime, cwd: str) -> str:
    session = await runtime.new(SessionSetup(cwd=cwd))
    await runtime.set_title(session.session_id, "Stored")
    await session.close()
    return session.session_id


async def made(runtime: CodexRuntime, cwd: str, _: str) -> None:
    await (await runtime.new(SessionSetup(cwd=cwd))).close()


async def resumed(runtime: CodexRuntime, cwd: str, session_id: str) -> None:
    await (await runtime.resume(session_id, SessionSetup(cwd=cwd))).close()


async def forked(runtime: CodexRuntime, cwd: str, session_id: str) -> None:
    await (await runtime.fork(session_id, SessionSetup(cwd=cwd))).close()


async def listed(runtime: CodexRuntime, cwd: str, _: str) -> None:
    await runtime.list(cwd=cwd, cursor=None)


async def read(runtime: CodexRuntime, __: str, session_id: str) -> None:
    async for _ in runtime.history(session_id, live=False):
        pass


async def titled(runtime: CodexRuntime, _: str, session_id: str) -> None:
    await runtime.set_title(session_id, "Another")


async def asked_for_the_login(runtime: CodexRuntime, _: str, __: str) -> None:
    assert (await runtime.auth_status())["state"] == "authenticated"


@pytest.mark.parametrize(
    ("method", "work"),
    [
        ("account/read", made),
        ("thread/start", made),
        ("thread/resume", resumed),
        ("thread/fork", forked),
        ("thread/list", listed),
        ("thread/items/list", read),
        ("thread/name/set", titled),
        ("account/read", asked_for_the_login),
    ],
)
async def test_who_signs_in_disturbs_nobody(
    runtime: CodexRuntime,
    own_login: Path,
    cwd: str,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    work: Callable[[CodexRuntime, str, str], Awaitable[None]],
) -> None:
    """Who waits for an answer gets it from the process that was asked."""
    session_id = await a_stored_one(runtime, cwd)
    runtime._account.changed()
    held, send = Held(), AppServer._send

    async def send_later(server: AppServer, message: Mapping[str, Any], patience: float) -> None:
        if message.get("method") == method and not held.reached.is_set():
            await held.here()
        await send(server, message, patience)

    monkeypatch.setattr(AppServer, "_send", send_later)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, runtime, cwd, session_id)
        await held.reached.wait()
        tasks.start_soon(runtime.login, "api-key", {})
        await settle()
        held.released.set()
    # Not in any file: Codex writes its environment down for the commands of a session.
    assert KEY not in own_login.read_text(encoding="utf-8")


@pytest.mark.usefixtures("own_login")
async def test_a_thread_that_is_about_to_be_loaded_is_loaded_by_the_next_process(
    runtime: CodexRuntime, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await a_stored_one(runtime, cwd)
    held, request = Held(), AppServer.request

    async def request_later(server: AppServer, asked: str, *arguments: Any, **more: Any) -> Any:
        if asked == "thread/resume" and not held.reached.is_set():
            await held.here()
        return await request(server, asked, *arguments, **more)

    monkeypatch.setattr(AppServer, "request", request_later)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resumed, runtime, cwd, session_id)
        await held.reached.wait()
        await runtime.login("api-key", {})
        held.released.set()


PROMPTS = [f"prompt {number}" for number in range(3)]


@pytest.mark.usefixtures("own_login")
async def test_a_history_is_read_on_by_the_process_that_follows(
    runtime: CodexRuntime, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any page: a client that does not read its replay keeps nobody from signing in."""
    session = await runtime.new(SessionSetup(cwd=cwd))
    events = session.events()
    for number, prompt in enumerate(PROMPTS):
        await session.submit(f"{ID[:-1]}{number}", [{"type": "text", "text": prompt}])
        await idle(events)
    await session.close()
    monkeypatch.setattr(pages, "PAGE", 1)
    whole = [entry async for entry in runtime.history(session.session_id, live=False)]
    assert len(whole) == 2 * len(PROMPTS)
    before = await runtime._servers.get()
    found: list[HistoryEntry] = []
    async for entry in runtime.history(session.session_id, live=False):
        found.append(entry)
        if len(found) == len(PROMPTS):
            await runtime.login("api-key", {})
    assert await runtime._servers.get() is not before
    assert found == whole


@pytest.mark.usefixtures("own_login")
async def test_a_session_without_a_prompt_outlives_a_login(
    runtime: CodexRuntime, service: ResponsesService, cwd: str
) -> None:
    """Until its first prompt its process alone knows it."""
    session = await runtime.new(SessionSetup(cwd=cwd))
    await runtime.login("api-key", {})
    assert not await runtime.stored(session.session_id)
    await session.submit("0190c0de-0000-7000-8000-00000000000a", [{"type": "text", "text": "hello"}])
    async for event in session.events():
        if isinstance(event, Foreground) and event.state == "idle" and event.stop_reason:
            assert event.stop_reason == "end_turn"
            break
    assert service.count("hello") == 1
    assert await runtime.message_ids(session.session_id) == {"0190c0de-0000-7000-8000-00000000000a"}
    await session.close()


async def test_a_key_that_codex_refuses_is_in_nobodys_way(
    folder: Path, service: ResponsesService, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = codex_environment(folder, service, auth=True, OPENAI_API_KEY=KEY)
    config = Path(env["CODEX_HOME"], "config.toml")
    config.write_text(f'forced_login_method = "chatgpt"\n{config.read_text(encoding="utf-8")}', encoding="utf-8")
    held, notify = Held(), AppServer.notify

    async def notify_later(server: AppServer, method: str) -> None:
        await notify(server, method)
        await held.here()

    monkeypatch.setattr(AppServer, "notify", notify_later)

    async def sign_in(runtime: CodexRuntime) -> None:
        with pytest.raises(AppServerError, match="disabled"):
            await runtime.login("api-key", {})

    with anyio.fail_after(60):
        async with CodexRuntime(env) as runtime:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(sign_in, runtime)
                await held.reached.wait()
                # Who signs in again is told the same, and who asks for something else meanwhile gets it.
                tasks.start_soon(sign_in, runtime)
                tasks.start_soon(listed, runtime, cwd, "")
                await settle()
                held.released.set()
            assert (await runtime.auth_status())["state"] == "unauthenticated"


@pytest.mark.parametrize("needs_login", [False, True])
@pytest.mark.parametrize("broken", ["unknown provider", "bytes", "folder", "syntax"])
async def test_a_configuration_that_cannot_be_used_is_named(
    folder: Path, service: ResponsesService, cwd: str, broken: str, needs_login: bool
) -> None:
    """And no longer than it is so."""
    env = codex_environment(folder, service, auth=needs_login, OPENAI_API_KEY=KEY)
    config = Path(env["CODEX_HOME"], "config.toml")
    right = config.read_bytes()
    match broken:
        case "unknown provider":
            config.write_bytes(right.replace(b'model_provider = "', b'model_provider = "no-'))
        case "bytes":
            config.write_bytes(b'model = "\xff"\n')
        case "folder":
            config.unlink()
            config.mkdir()
        case _:
            config.write_bytes(b"model = [[[\n")
    setup = SessionSetup(cwd=cwd)
    with anyio.fail_after(60):
        async with CodexRuntime(env) as runtime:
            with pytest.raises(AuthRequired, match=r"Not signed in to Codex\. .*onfig"):
                await runtime.new(setup)
            if config.is_dir():
                config.rmdir()
            config.write_bytes(right)
            if needs_login:
                await runtime.login("api-key", {})
            session = await runtime.new(setup)
            told: list[RuntimeEvent] = []

            async def listen() -> None:
                told.extend([event async for event in session.events()])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await settle()
                await session.close()
    assert told
    assert "nvalid configuration" not in str(told)


@pytest.mark.usefixtures("own_login")
@pytest.mark.parametrize("method", ["thread/archive", "thread/unarchive"])
async def test_a_login_that_is_cancelled_loses_no_session(
    runtime: CodexRuntime, cwd: str, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """While the last of two sessions is stored that nothing was said in yet."""
    sessions = [await runtime.new(SessionSetup(cwd=cwd)) for _ in range(2)]
    held, give, asked = Held(), AppServer.give, list[str]()

    async def give_later(server: AppServer, wanted: str, *arguments: Any) -> Any:
        asked.append(wanted)
        if asked.count(method) == len(sessions) and not held.reached.is_set():
            await held.here()
        return await give(server, wanted, *arguments)

    monkeypatch.setattr(AppServer, "give", give_later)
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as signing_in:
            signing_in.start_soon(runtime.login, "api-key", {})
            await held.reached.wait()
            signing_in.cancel_scope.cancel()
            tasks.start_soon(settle_then, held.released.set)
    for session in sessions:
        await session.submit(ID, TEXT)
        assert isinstance(await outcome(session.events()), Inserted)
        await session.close()
    listed = (await runtime.list(cwd=cwd, cursor=None)).sessions
    assert {found.session_id for found in listed} == {session.session_id for session in sessions}


async def settle_then(do: Callable[[], None]) -> None:
    await settle()
    do()


@pytest.mark.usefixtures("own_login")
@pytest.mark.parametrize("close", [False, True])
async def test_a_turn_can_be_stopped_while_somebody_signs_in(
    runtime: CodexRuntime, script: Script, cwd: str, close: bool
) -> None:
    """The process waits for somebody else's answer before another one takes its place."""
    script.steps = [Step("hello", [[Text("I begin"), Hold("work")]])]
    session, other = [await runtime.new(SessionSetup(cwd=cwd)) for _ in range(2)]
    events = session.events()
    await session.submit(ID, TEXT)
    assert isinstance(await outcome(events), Inserted)
    server = await runtime._servers.get()
    async with anyio.create_task_group() as tasks:
        with server.use():
            tasks.start_soon(runtime.login, "api-key", {})
            while not server.leaving:
                await settle()
            if close:
                await session.close()
            else:
                await session.interrupt()
                await idle(events)
    assert server.status == ExitStatus(0, None)
    await other.submit(ID, TEXT)
    assert isinstance(await outcome(other.events()), Inserted)


@pytest.mark.usefixtures("own_login")
async def test_a_child_that_begins_while_somebody_signs_in_is_no_stranger(runtime: CodexRuntime, cwd: str) -> None:
    session = await runtime.new(SessionSetup(cwd=cwd))
    server = await runtime._servers.get()
    routes = runtime._servers._routes[server]
    asked: list[str] = []
    with server.use() as use:
        server.leave()
        await session.store(use)
        give = server.give

        async def noted(method: str, *arguments: Any) -> Any:
            asked.append(method)
            return await give(method, *arguments)

        server.give = noted  # type: ignore[method-assign]
        routes.notified(server, "turn/started", {"threadId": "child", "turn": {"id": "t"}})
        await settle()
    assert asked == ["thread/read"]


@pytest.mark.usefixtures("own_login")
@pytest.mark.parametrize("first", [False, True])
async def test_a_prompt_that_is_got_ready_is_written_before_a_login(
    runtime: CodexRuntime, cwd: str, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    session = await runtime.new(SessionSetup(cwd=cwd))
    events = session.events()
    if not first:
        await session.submit(f"{ID[:-1]}0", [{"type": "text", "text": "before"}])
        await idle(events)
    held, check = Held(), Record.check_storage

    async def check_later(record: Record, content: Any) -> None:
        await check(record, content)
        await held.here()

    monkeypatch.setattr(Record, "check_storage", check_later)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.submit, ID, TEXT)
        await held.reached.wait()
        tasks.start_soon(runtime.login, "api-key", {})
        await settle()
        held.released.set()
    assert isinstance(await outcome(events), Inserted)


@pytest.mark.usefixtures("own_login")
async def test_a_prompt_for_a_thread_that_was_unloaded_meanwhile_is_given_again(
    runtime: CodexRuntime, service: ResponsesService, cwd: str
) -> None:
    """Codex tells it, but for one that was unloaded by being archived (measured)."""
    session = await runtime.new(SessionSetup(cwd=cwd))
    server = await runtime._servers.get()
    await session.store(Use(server))
    await session.submit(ID, TEXT)
    events = session.events()
    assert isinstance(await outcome(events), Inserted)
    await idle(events)
    assert service.count("hello") == 1


async def test_a_key_that_is_refused_ends_nothing(folder: Path, service: ResponsesService, cwd: str) -> None:
    env = codex_environment(folder, service, auth=False, OPENAI_API_KEY=KEY)
    config = Path(env["CODEX_HOME"], "config.toml")
    config.write_text(f'forced_login_method = "chatgpt"\n{config.read_text(encoding="utf-8")}', encoding="utf-8")
    with anyio.fail_after(60):
        async with CodexRuntime(env) as runtime:
            session = await runtime.new(SessionSetup(cwd=cwd))
            before = await runtime._servers.get()
            with pytest.raises(AppServerError, match="disabled"):
                await runtime.login("api-key", {})
            assert await runtime._servers.get() is before
            await session.submit(ID, TEXT)
            assert isinstance(await outcome(session.events()), Inserted)


@pytest.mark.usefixtures("own_login")
async def test_what_was_read_before_the_account_changed_is_read_again(
    runtime: CodexRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex says so before who asked it has run."""
    server = await runtime._servers.get()
    take, read = AppServer._take, AppServer.request
    asked: list[str] = []

    def take_both(self: AppServer, line: bytes | TooLong) -> None:
        take(self, line)
        if isinstance(line, bytes) and "account" in (json.loads(line).get("result") or {}) and len(asked) == 1:
            take(self, b'{"method": "account/updated", "params": {"authMode": null}}')

    async def request(self: AppServer, method: str, *arguments: Any, **more: Any) -> Any:
        asked.append(method)
        return await read(self, method, *arguments, **more)

    monkeypatch.setattr(AppServer, "_take", take_both)
    monkeypatch.setattr(AppServer, "request", request)
    assert await runtime._account.require(server) is server
    assert await runtime._account.require(server) is server
    assert asked == ["account/read"] * 2


Opened = Callable[[Callable[[str], object]], None]


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """What opening a page does, in the thread that does it."""

    def set_up(opens: Callable[[str], object]) -> None:
        monkeypatch.setattr("webbrowser.open", opens)

    return set_up


class TestInTheBrowser:
    @pytest.fixture
    async def waiting(self, runtime: CodexRuntime, browser: Opened) -> AsyncIterator[tuple[list[str], anyio.Event]]:
        """A login whose page is open: how it ended, and when."""
        opened, over, outcomes = anyio.Event(), anyio.Event(), list[str]()
        browser(opens(opened))

        async def sign_in() -> None:
            try:
                await runtime.login("chatgpt", {})
            except RuntimeFault as fault:
                outcomes.append(str(fault))
            over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sign_in)
            await opened.wait()
            yield outcomes, over
            tasks.cancel_scope.cancel()

    async def test_nobody_takes_its_process_away(
        self, runtime: CodexRuntime, cwd: str, waiting: tuple[list[str], anyio.Event]
    ) -> None:
        server = await runtime._servers.get()
        with pytest.raises(AuthRequired):
            await runtime.new(SessionSetup(cwd=cwd))
        assert await runtime._servers.get() is server
        assert not waiting[1].is_set()

    async def test_nor_before_codex_waits_for_it(self, runtime: CodexRuntime, cwd: str, browser: Opened) -> None:
        """Both are asked for in one read."""
        opened = anyio.Event()
        browser(opens(opened))
        await runtime.warm_up()

        async def new() -> None:
            with pytest.raises(AuthRequired):
                await runtime.new(SessionSetup(cwd=cwd))

        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as both:
                both.start_soon(new)
                tasks.start_soon(runtime.login, "chatgpt", {})
            await opened.wait()
            await settle()
            tasks.cancel_scope.cancel()

    async def test_a_login_in_a_terminal_is_seen_meanwhile(
        self,
        runtime: CodexRuntime,
        env: dict[str, str],
        cwd: str,
        waiting: tuple[list[str], anyio.Event],
    ) -> None:
        """And the one in the browser is not needed any more."""
        Path(env["CODEX_HOME"], "auth.json").write_text(
            json.dumps({"OPENAI_API_KEY": "sk-of-the-user", "auth_mode": "apikey"}), encoding="utf-8"
        )
        await (await runtime.new(SessionSetup(cwd=cwd))).close()
        outcomes, over = waiting
        await over.wait()
        assert outcomes == []

    async def test_it_ends_with_its_process(
        self, runtime: CodexRuntime, waiting: tuple[list[str], anyio.Event]
    ) -> None:
        outcomes, over = waiting
        await (await runtime._servers.get()).kill()
        await over.wait()
        assert outcomes == ["Codex ended before somebody signed in"]

    async def test_one_that_comes_to_nothing_costs_no_key_and_no_work(
        self, runtime: CodexRuntime, script: Script, cwd: str, browser: Opened
    ) -> None:
        script.steps = [Step("hello", [[Text("I begin"), Hold("work")]])]
        await runtime.login("api-key", {})
        session = await runtime.new(SessionSetup(cwd=cwd))
        await session.submit(ID, TEXT)
        assert isinstance(await outcome(session.events()), Inserted)
        server = await runtime._servers.get()
        browser(lambda _: False)
        with pytest.raises(RuntimeFault, match="No browser"):
            await runtime.login("chatgpt", {})
        assert await runtime._servers.get() is server
        assert (await runtime.auth_status())["state"] == "authenticated"

    async def test_one_that_succeeds_beside_a_key_takes_its_place(
        self, runtime: CodexRuntime, own_login: Path, browser: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await runtime.login("api-key", {})
        before = await runtime._servers.get()
        browser(lambda _: True)
        take = AppServer._take

        def take_both(server: AppServer, line: bytes | TooLong) -> None:
            take(server, line)
            assert isinstance(line, bytes)
            if login_id := (json.loads(line).get("result") or {}).get("loginId"):
                over = {"loginId": login_id, "success": True}
                take(server, json.dumps({"method": "account/login/completed", "params": over}).encode())

        monkeypatch.setattr(AppServer, "_take", take_both)
        await runtime.login("chatgpt", {})
        assert not before.running
        # That of the user, who signed in otherwise.
        assert (await runtime.auth_status())["state"] == "authenticated"
        arguments = Path(f"/proc/{(await runtime._servers.get()).runtime_pid}/cmdline").read_bytes()
        assert b"ephemeral" not in arguments

    async def test_one_that_is_cancelled_at_once_opens_nothing(
        self, runtime: CodexRuntime, browser: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[str] = []
        browser(opened.append)
        sent, send = anyio.Event(), AppServer._send

        async def noted(server: AppServer, message: Mapping[str, Any], patience: float) -> None:
            await send(server, message, patience)
            if message.get("method") == "account/login/start":
                sent.set()

        monkeypatch.setattr(AppServer, "_send", noted)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.login, "chatgpt", {})
            await sent.wait()
            tasks.cancel_scope.cancel()
        assert not [thread for thread in threading.enumerate() if thread.name == "browser"]
        assert opened == []

    @pytest.mark.parametrize("fails", [False, True])
    async def test_that_there_is_no_browser_is_told(self, runtime: CodexRuntime, browser: Opened, fails: bool) -> None:
        def no(_: str) -> bool:
            if fails:
                raise webbrowser.Error
            return False

        browser(no)
        with pytest.raises(RuntimeFault, match="sayagain codex login"):
            await runtime.login("chatgpt", {})

    async def test_a_browser_in_the_terminal_keeps_nothing(self, runtime: CodexRuntime, browser: Opened) -> None:
        """It is waited for by who opens it."""
        opened, end, token = anyio.Event(), threading.Event(), anyio.lowlevel.current_token()

        def waits(_: str) -> bool:
            anyio.from_thread.run_sync(opened.set, token=token)
            return end.wait(60)

        browser(waits)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.login, "chatgpt", {})
            await opened.wait()
            tasks.cancel_scope.cancel()
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "browser")
        assert thread.daemon
        end.set()
        thread.join()

    async def test_one_that_fails_at_once_is_told(
        self, runtime: CodexRuntime, browser: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The end of the login is in the same read as its beginning."""
        browser(lambda _: True)
        take = AppServer._take

        def take_both(server: AppServer, line: bytes | TooLong) -> None:
            take(server, line)
            assert isinstance(line, bytes)
            if login_id := (json.loads(line).get("result") or {}).get("loginId"):
                over = {"loginId": login_id, "success": False, "error": "the port is taken"}
                take(server, json.dumps({"method": "account/login/completed", "params": over}).encode())

        monkeypatch.setattr(AppServer, "_take", take_both)
        with pytest.raises(RuntimeFault, match="the port is taken"):
            await runtime.login("chatgpt", {})

    @pytest.mark.parametrize("gone", [False, True])
    async def test_one_that_is_cancelled_is_cancelled(
        self, runtime: CodexRuntime, browser: Opened, monkeypatch: pytest.MonkeyPatch, gone: bool
    ) -> None:
        """Whatever Codex says to that; and it is not open any more."""
        opened, asked, request = anyio.Event(), list[str](), AppServer.request
        browser(opens(opened))

        async def noted(server: AppServer, method: str, *arguments: Any, **more: Any) -> Any:
            asked.append(method)
            if method == "account/login/cancel" and gone:
                raise RuntimeDied
            return await request(server, method, *arguments, **more)

        monkeypatch.setattr(AppServer, "request", noted)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.login, "chatgpt", {})
            await opened.wait()
            tasks.cancel_scope.cancel()
        assert asked[-1] == "account/login/cancel"


def opens(opened: anyio.Event) -> Callable[[str], bool]:
    token = anyio.lowlevel.current_token()

    def open_it(_: str) -> bool:
        anyio.from_thread.run_sync(opened.set, token=token)
        return True

    return open_it
