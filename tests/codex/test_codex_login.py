"""Signing in and out while other things go on: on the real Codex."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from sayagain.errors import AuthRequired, RuntimeFault
from sayagain.runtime.events import Foreground, RuntimeEvent
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.responses_api import ResponsesService
from sayagain_codex.app_server import AppServer, AppServerError
from sayagain_codex.runtime import CodexRuntime
from support_codex import codex_environment

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


@pytest.mark.usefixtures("own_login")
async def test_a_history_is_read_to_its_end_by_the_process_that_began(runtime: CodexRuntime, cwd: str) -> None:
    session_id = await a_stored_one(runtime, cwd)
    async with anyio.create_task_group() as tasks:
        async with runtime._reading(session_id) as (server, _):
            tasks.start_soon(runtime.login, "api-key", {})
            for _ in range(50):
                await settle()
                await server.request("thread/turns/list", {"threadId": session_id})
    assert server.retired


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


class TestInTheBrowser:
    @pytest.fixture
    async def waiting(
        self, runtime: CodexRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[tuple[list[str], anyio.Event]]:
        """A login whose page is open: how it ended, and when."""
        opened, over, outcomes = anyio.Event(), anyio.Event(), list[str]()
        monkeypatch.setattr("webbrowser.open", lambda _: anyio.from_thread.run_sync(opened.set))

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
        with pytest.raises(AuthRequired, match="not finished"):
            await runtime.new(SessionSetup(cwd=cwd))
        assert await runtime._servers.get() is server
        assert not waiting[1].is_set()

    async def test_it_ends_with_its_process(
        self, runtime: CodexRuntime, waiting: tuple[list[str], anyio.Event]
    ) -> None:
        outcomes, over = waiting
        await (await runtime._servers.get()).kill()
        await over.wait()
        assert outcomes == ["Codex ended before somebody signed in"]
