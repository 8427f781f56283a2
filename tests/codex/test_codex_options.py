"""Options, commands, lists, accounts, command lines: pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from pytest_mock import MockerFixture

from sayagain.errors import (
    HistoryUnreadable,
    InvalidParams,
    PromptRefused,
    RuntimeMissing,
    SessionInUse,
    SessionNotFound,
)
from sayagain.runtime.seam import SessionSetup
from sayagain_codex import auth, command, executable, listing, threads
from sayagain_codex.app_server import AppServerError
from sayagain_codex.commands import REFUSED, Skills, parse, refusal
from sayagain_codex.offers import Offers
from sayagain_codex.options import Options

LOADED = {
    "model": "m1",
    "reasoningEffort": None,
    "approvalPolicy": "on-request",
    "sandbox": {"type": "readOnly"},
}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def model(name: str, *efforts: str, hidden: bool = False) -> dict[str, Any]:
    return {
        "model": name,
        "displayName": name.upper(),
        "description": "",
        "hidden": hidden,
        "defaultReasoningEffort": efforts[0],
        "supportedReasoningEfforts": [{"reasoningEffort": effort, "description": effort} for effort in efforts],
    }


def current(options: Options) -> dict[str, str]:
    return {option["configId"]: option["currentValue"] for option in options.wire()}


@pytest.fixture
def options() -> Options:
    options = Options()
    assert options.wire() == []
    options.loaded(LOADED)
    options.offered([model("m1", "low", "high"), model("m2", "medium"), model("m3", "low", hidden=True)])
    return options


def test_the_options_of_a_new_thread(options: Options) -> None:
    assert current(options) == {
        "mode": "read-only",
        "model": "m1",
        "reasoning_effort": "low",
        "collaboration_mode": "default",
    }
    for option in options.wire():
        values = [entry["value"] for entry in option["options"]]
        assert option["currentValue"] in values
        assert len(set(values)) == len(values)
    (models,) = (option for option in options.wire() if option["configId"] == "model")
    assert [entry["value"] for entry in models["options"]] == ["m1", "m2"]


@pytest.mark.parametrize(
    ("sandbox", "policy", "mode"),
    [
        ("readOnly", "on-request", "read-only"),
        ("workspaceWrite", "on-request", "workspace-write"),
        ("dangerFullAccess", "never", "full-access"),
        ("dangerFullAccess", "on-request", "custom"),
        ("externalSandbox", "never", "custom"),
        ("readOnly", {"granular": {}}, "custom"),
    ],
)
def test_modes(options: Options, sandbox: str, policy: Any, mode: str) -> None:
    options.loaded({**LOADED, "sandbox": {"type": sandbox}, "approvalPolicy": policy})
    assert current(options)["mode"] == mode


def test_choices(options: Options) -> None:
    assert options.change("mode", "full-access") == {"approvalPolicy": "never", "permissions": ":danger-full-access"}
    assert options.change("model", "m2") == {"model": "m2"}
    assert options.change("reasoning_effort", "high") == {"effort": "high"}
    settings = {"model": "m1", "reasoning_effort": None}
    assert options.change("collaboration_mode", "plan") == {"collaborationMode": {"mode": "plan", "settings": settings}}
    for config_id, value in (("none", "x"), ("mode", "custom"), ("mode", "x"), ("model", True), ("model", "m3")):
        with pytest.raises(InvalidParams):
            options.change(config_id, value)


def test_an_effort_that_the_new_model_lacks_gives_way(options: Options) -> None:
    options.updated(
        {
            "model": "m1",
            "effort": "high",
            "approvalPolicy": "never",
            "sandboxPolicy": {"type": "dangerFullAccess"},
            "collaborationMode": {"mode": "plan"},
        }
    )
    assert current(options)["collaboration_mode"] == "plan"
    assert options.change("model", "m2") == {"model": "m2", "effort": "medium"}


def test_an_unknown_model_has_no_efforts(options: Options) -> None:
    options.loaded({**LOADED, "model": "mine"})
    assert "reasoning_effort" not in current(options)
    assert current(options)["model"] == "mine"


def text(content: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": content}]


def test_local_commands() -> None:
    compact = parse(text(" /compact "))
    assert compact is not None
    assert (compact.method, compact.works) == ("thread/compact/start", True)
    review = parse(text("/review-branch main"))
    assert review is not None
    assert review.params == {"target": {"type": "baseBranch", "branch": "main"}}
    rename = parse(text("/rename A title"))
    assert rename is not None
    assert (rename.params, rename.works) == ({"name": "A title"}, False)
    for content in ("/review-branch\nmain", "/review-branch\t main\n", "/review-branch\u00a0main"):
        assert parse(text(content)) == review
    assert parse(text("/rename\nA\n title")) == rename
    for content in ("hello", "/unknown", "compact", "/compact/this", "/ compact"):
        assert parse(text(content)) is None
    assert parse([*text("/compact"), *text("and more")]) is None
    for content in ("/rename", "/review-commit", "/review-branch  ", "/compact\nand then go on"):
        with pytest.raises(PromptRefused):
            parse(text(content))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_commands_of_the_terminal_are_refused_with_a_hint(name: str) -> None:
    assert refusal(text(f" /{name}\n")) == f"/{name} cannot work here; {REFUSED[name]}"
    assert parse(text(f"/{name}")) is None, "what works is not refused"


@pytest.mark.parametrize("content", ["/clear it all", "/new thing", "/plan\nfirst this", "/cd ..", "/goal ship it"])
def test_commands_that_take_words_are_refused_with_them(content: str) -> None:
    assert refusal(text(content))


@pytest.mark.parametrize("content", ["/status 500 is returned", "/model/user.py", "/etc/hosts", "clear", "/", "", "/x"])
def test_what_the_terminal_gives_to_the_model_is_not_refused(content: str) -> None:
    assert refusal(text(content)) is None
    assert refusal([*text("/clear"), *text("and more")]) is None


def test_skills_are_commands_too() -> None:
    skills = Skills()

    def skill(name: str, enabled: bool = True) -> dict[str, Any]:
        return {"name": name, "description": "d", "path": f"/{name}", "enabled": enabled}

    listed = [skill("greet"), skill("off", enabled=False), skill("compact"), skill("two words")]
    skills.listed({"data": [{"cwd": "/w", "skills": listed}, {"cwd": "/x", "skills": [skill("far")]}]}, "/w")
    names = [entry["name"] for entry in skills.available_commands()]
    assert names[-1] == "greet"
    assert len(set(names)) == len(names)
    assert skills.mention(text("/greet me")) == [{"type": "skill", "name": "greet", "path": "/greet"}]
    assert skills.mention(text("/greet\nme")) == skills.mention(text("/greet me"))
    assert skills.mention(text("/far")) == []
    assert skills.mention(text("greet")) == []


def test_titles() -> None:
    assert listing.title_of({"name": "N", "preview": "p"}) == "N"
    assert listing.title_of({"name": None, "preview": " a\n b "}) == "a b"
    assert listing.title_of({"preview": ""}) is None
    assert listing.title_of({"preview": "x" * 200}) == "x" * 79 + "…"


class Client:
    def __init__(self, *pages: Any) -> None:
        self.pages = list(pages)
        self.asked: list[dict[str, Any]] = []

    async def request(self, method: str, params: Any, *, patience: float | None = None) -> Any:
        self.asked.append({"method": method, **params})
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page


def thread(thread_id: str) -> dict[str, Any]:
    return {"id": thread_id, "cwd": "/w", "name": None, "preview": thread_id, "updatedAt": 0}


class Models:
    """An app-server that knows two models and no skills."""

    async def request(self, method: str, params: Any) -> Any:
        return {"data": [model("m1", "low", "high"), model("m2", "medium")] if method == "model/list" else []}


async def test_options_are_told_to_a_client_that_has_others(mocker: MockerFixture) -> None:
    outbox = mocker.Mock()
    offers = Offers("session", outbox)
    offers.loaded(LOADED)
    await offers.describe(Models(), "/")  # type: ignore[arg-type]
    # The answer to session/new has all of them: nothing of them follows it.
    await offers.described()
    assert [option["configId"] for option in offers.options()][1] == "model"
    settings = {
        "model": "m2",
        "effort": None,
        "approvalPolicy": "on-request",
        "sandboxPolicy": {"type": "readOnly"},
        "collaborationMode": {"mode": "default"},
    }
    offers.updated(settings)
    offers.updated(settings)
    told = [call.args[0] for call in outbox.update.call_args_list]
    changes = [update["configOptions"] for update in told if update["sessionUpdate"] == "config_option_update"]
    assert changes == [offers.options()]


@pytest.mark.parametrize("has_skill", [True, False])
async def test_whether_a_command_is_a_skill_is_waited_for(mocker: MockerFixture, has_skill: bool) -> None:
    mocker.patch("sayagain_codex.offers.OFFER_PATIENCE", 30)
    server, checked, refusals = mocker.Mock(), anyio.Event(), list[str]()
    skills = [{"name": "diff", "description": "d", "path": "/diff"}] if has_skill else []
    server.request = mocker.AsyncMock(return_value={"data": [{"cwd": "/w", "skills": skills}]})
    offers = Offers("session", mocker.Mock())

    async def check() -> None:
        try:
            await offers.check(text("/diff"))
        except PromptRefused as error:
            refusals.append(str(error))
        checked.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check)
            await anyio.wait_all_tasks_blocked()
            assert not checked.is_set()
            await offers.list_skills(server, "/w")
            await checked.wait()
    assert refusals == ([] if has_skill else [f"/diff cannot work here; {REFUSED['diff']}"])
    await offers.check(text("/unknown"))


async def test_to_ask_for_the_options_is_not_to_open_the_session(mocker: MockerFixture) -> None:
    outbox = mocker.Mock()
    offers = Offers("session", outbox)
    assert offers.options() == []
    offers.loaded(LOADED)
    outbox.update.assert_not_called()
    offers.opened()
    await offers.describe(Models(), "/")  # type: ignore[arg-type]
    told = [call.args[0] for call in outbox.update.call_args_list]
    assert [update["configOptions"] for update in told if update["sessionUpdate"] == "config_option_update"] == [
        offers.options()
    ]


async def test_both_lists_follow_each_other() -> None:
    client = Client(
        {"data": [thread("a")], "nextCursor": "more"},
        {"data": [thread("b")], "nextCursor": None},
        {"data": [thread("c")], "nextCursor": None},
    )
    rows: list[Any] = []
    cursor = None
    while True:
        page = await listing.list_sessions(client, {}, cwd=None, cursor=cursor, archived="include")
        rows += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [(row.session_id, row.archived) for row in rows] == [("a", False), ("b", False), ("c", True)]
    # Sorted by creation, Codex loses threads between pages.
    assert {asked["sortKey"] for asked in client.asked} == {"updated_at"}
    assert rows[0].updated_at == "1970-01-01T00:00:00Z"
    assert [(asked["archived"], asked["cursor"]) for asked in client.asked] == [
        (False, None),
        (False, "more"),
        (True, None),
    ]


@pytest.mark.parametrize("cursor", ["", "x", "[1]", "[true,null]", '["a",1]', "[false,1]", "null", "{}"])
async def test_bad_cursors(cursor: str) -> None:
    with pytest.raises(InvalidParams):
        await listing.list_sessions(Client(), {}, cwd=None, cursor=cursor, archived="exclude")


async def test_the_last_items_of_every_kind_of_thread() -> None:
    user = {"type": "userMessage", "id": "i1", "clientId": "c1"}
    agent = {"type": "agentMessage", "id": "a", "clientId": "c2"}
    paged = {"data": [{"item": user}, {"item": agent}]}
    assert await threads.last_items_have(Client(paged), "t", "c1")
    assert not await threads.last_items_have(Client(paged), "t", "c2")
    legacy = {"data": [{"items": [agent]}, {"items": [user]}]}
    assert await threads.last_items_have(Client(AppServerError(-32601, "no"), legacy), "t", "c1")
    with pytest.raises(AppServerError):
        await threads.last_items_have(Client(AppServerError(-32603, "disk")), "t", "c1")


async def test_a_ghost_is_a_last_turn_without_items() -> None:
    ghost = {"id": "g", "status": "interrupted", "items": []}
    client = Client({"data": [ghost]}, {"thread": {"path": "/another"}})
    assert await threads.revert_ghost(client, "t") == {"path": "/another"}
    assert client.asked[1] == {"method": "thread/revert", "threadId": "t", "beforeTurnId": "g"}
    for turn in ({**ghost, "items": [{}]}, {**ghost, "status": "completed"}):
        assert await threads.revert_ghost(Client({"data": [turn]}), "t") is None
    assert await threads.revert_ghost(Client({"data": []}), "t") is None
    assert await threads.revert_ghost(Client(AppServerError(-32600, "is not materialized yet")), "t") is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("no rollout found for thread id x", SessionNotFound),
        ("rollout at /x is empty", SessionNotFound),
        ("thread x already has an active writer", SessionInUse),
        ("session x is archived. Run", threads.SessionArchived),
        ("failed to read session metadata /x: it does not start with session metadata", HistoryUnreadable),
        ("failed to open thread history database: file is not a database", HistoryUnreadable),
        ("something else", AppServerError),
    ],
)
def test_what_refusals_mean(text: str, kind: type[Exception]) -> None:
    assert isinstance(threads.thread_fault(AppServerError(-32600, text), "x"), kind)


def test_a_refusal_quotes_no_value_of_the_configuration() -> None:
    text = 'failed to load configuration: /c.toml:1:2: invalid type: string "sk-1", expected a map'
    fault = threads.thread_fault(AppServerError(-32600, text), "x")
    assert str(fault) == text.replace("sk-1", "…")


def test_accounts() -> None:
    assert not auth.signed_in({"account": None, "requiresOpenaiAuth": True})
    assert auth.signed_in({"account": None, "requiresOpenaiAuth": False})
    assert auth.signed_in({"account": {"type": "apiKey"}, "requiresOpenaiAuth": True})
    assert auth.auth_status({"account": None, "requiresOpenaiAuth": False})["state"] == "not_required"
    chatgpt = {"account": {"type": "chatgpt", "email": "a@b.c", "planType": "plus"}, "requiresOpenaiAuth": True}
    assert auth.auth_status(chatgpt) == {
        "state": "authenticated",
        "accounts": [{"label": "a@b.c", "active": True, "email": "a@b.c"}],
    }
    assert auth.api_key({"OPENAI_API_KEY": "o", "CODEX_API_KEY": " c "}) == "c"
    with pytest.raises(auth.ApiKeyMissing) as caught:
        auth.api_key({"OPENAI_API_KEY": " "})
    assert caught.value.data["envVars"] == ["CODEX_API_KEY", "OPENAI_API_KEY"]
    assert [method["methodId"] for method in auth.auth_methods({}, {})] == ["api-key", "chatgpt"]


def test_a_stored_login_that_cannot_be_used_is_none_and_named(tmp_path: Path) -> None:
    env, stored = {"CODEX_HOME": str(tmp_path)}, tmp_path / "auth.json"
    nobody = {"account": None, "requiresOpenaiAuth": True}
    assert auth.why_not(nobody, env) == "Not signed in to Codex"
    stored.write_text("{", encoding="utf-8")
    unused = f"Not signed in to Codex: {stored} holds no login that it can use"
    assert auth.why_not(nobody, env) == unused
    answer = auth.refused("plan type is required for chatgpt authentication")
    assert not auth.signed_in(answer)
    assert auth.auth_status(answer) == {"state": "unauthenticated", "accounts": []}
    assert auth.why_not(answer, env) == f"{unused} (plan type is required for chatgpt authentication)"


def test_mcp_servers_become_configuration() -> None:
    servers = [
        {"type": "stdio", "name": "a.b", "command": "c", "args": ["x"], "env": [{"name": "N", "value": "v"}]},
        {"type": "http", "name": "a b", "url": "http://h", "headers": [{"name": "H", "value": "v"}]},
    ]
    assert command.mcp_servers(servers) == {
        "a_b": {"command": "c", "args": ["x"], "env": {"N": "v"}},
        "a_b_2": {"url": "http://h", "http_headers": {"H": "v"}},
    }


def test_thread_params() -> None:
    prompt = {"mode": "override", "content": text("One") + text("Two")}
    params = command.thread_params(SessionSetup("/w", ("/x",), system_prompt=prompt))
    assert params == {
        "cwd": "/w",
        "runtimeWorkspaceRoots": ["/w", "/x"],
        "config": {},
        "baseInstructions": "One\n\nTwo",
    }


def test_a_key_in_memory_is_in_no_environment() -> None:
    env = {"OPENAI_API_KEY": "k", "CODEX_API_KEY": "k", "PATH": "p"}
    assert command.environment(env, ephemeral_login=True) == {"PATH": "p"}
    assert command.environment(env, ephemeral_login=False) == env


@pytest.mark.parametrize(
    ("agent", "fits"),
    [
        ("sayagain/0.163.0 (Linux)", True),
        ("sayagain/1.0.0 (Linux)", True),
        ("sayagain/0.162.9 (Linux)", False),
        ("sayagain/0.0.0 (Linux)", True),
        ("odd", True),
        (None, True),
    ],
)
def test_versions(agent: str | None, fits: bool) -> None:
    if fits:
        executable.check_version(agent, "/codex")
    else:
        with pytest.raises(RuntimeMissing, match=r"0\.162\.9.*sayagain\[codex\]"):
            executable.check_version(agent, "/codex")
