"""Signing in and out while other things go on: on the real Codex."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from sayagain.errors import AuthRequired
from sayagain.runtime.events import RuntimeEvent
from sayagain.runtime.seam import SessionSetup
from sayagain.testing.responses_api import ResponsesService
from sayagain_codex.app_server import AppServer
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


@pytest.mark.parametrize("own_login", [False, True])
async def test_a_key_goes_to_no_process_that_would_store_it(
    runtime: CodexRuntime, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, own_login: bool
) -> None:
    """The key comes while Codex is started ahead, which is when editors send it."""
    login = Path(env["CODEX_HOME"], "auth.json")
    before = json.dumps({"OPENAI_API_KEY": "sk-of-the-user", "auth_mode": "apikey"}) if own_login else None
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


async def test_a_logout_forgets_the_stored_login_too(runtime: CodexRuntime, env: dict[str, str]) -> None:
    login = Path(env["CODEX_HOME"], "auth.json")
    login.write_text(json.dumps({"OPENAI_API_KEY": "sk-of-the-user", "auth_mode": "apikey"}), encoding="utf-8")
    await runtime.login("api-key", {})
    await runtime.logout()
    assert not login.exists()
    assert (await runtime.auth_status())["state"] == "unauthenticated"


@pytest.mark.parametrize("method", ["account/read", "thread/start", "thread/resume"])
async def test_who_signs_in_disturbs_nobody_who_opens_a_session(
    runtime: CodexRuntime, env: dict[str, str], cwd: str, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A request that the process of before did not answer is made again to the one that takes its place."""
    setup = SessionSetup(cwd=cwd)
    login = Path(env["CODEX_HOME"], "auth.json")
    login.write_text(json.dumps({"OPENAI_API_KEY": "sk-of-the-user", "auth_mode": "apikey"}), encoding="utf-8")
    named = await runtime.new(setup)
    await runtime.set_title(named.session_id, "Stored")
    await named.close()
    await runtime._servers.stop()
    runtime._account.changed()
    held, request = Held(), AppServer.request

    async def request_later(server: AppServer, asked: str, *arguments: Any, **more: Any) -> Any:
        if asked == method and not held.reached.is_set():
            await held.here()
        return await request(server, asked, *arguments, **more)

    monkeypatch.setattr(AppServer, "request", request_later)
    opened: list[str] = []

    async def open_one() -> None:
        resumes = method == "thread/resume"
        session = await (runtime.resume(named.session_id, setup) if resumes else runtime.new(setup))
        opened.append(session.session_id)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_one)
        await held.reached.wait()
        await runtime.login("api-key", {})
        held.released.set()
    assert len(opened) == 1
    assert stored(env) == []


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
