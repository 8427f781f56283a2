"""The fields that we rely on are in the schema that the binary itself generates."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support_codex import codex_environment, codex_folder

pytestmark = pytest.mark.real

METHODS: dict[str, tuple[str, list[str], list[str]]] = {
    # method: (name of its types, params that we send, fields of the result that we read; a dot goes deeper)
    "thread/start": (
        "ThreadStart",
        ["cwd", "config", "runtimeWorkspaceRoots", "developerInstructions", "baseInstructions"],
        [
            *(f"thread.{name}" for name in ("id", "cwd", "status", "historyMode", "preview", "name")),
            *("model", "reasoningEffort", "approvalPolicy", "sandbox"),
        ],
    ),
    "thread/resume": (
        "ThreadResume",
        ["threadId", "excludeTurns", "cwd", "config", "runtimeWorkspaceRoots", "baseInstructions"],
        ["thread.id", "model", "reasoningEffort", "approvalPolicy", "sandbox", "collaborationMode"],
    ),
    "thread/fork": (
        "ThreadFork",
        ["threadId", "excludeTurns", "cwd", "config", "runtimeWorkspaceRoots"],
        ["thread.id", "model", "reasoningEffort", "approvalPolicy", "sandbox"],
    ),
    "thread/list": (
        "ThreadList",
        ["limit", "sortKey", "sortDirection", "archived", "modelProviders", "cwd", "cursor"],
        ["data", "nextCursor"],
    ),
    "thread/read": ("ThreadRead", ["threadId"], ["thread.parentThreadId", "thread.updatedAt"]),
    "thread/items/list": ("ThreadItemsList", ["threadId", "cursor", "limit", "sortDirection"], ["data", "nextCursor"]),
    "thread/turns/list": (
        "ThreadTurnsList",
        ["threadId", "cursor", "limit", "sortDirection", "itemsView"],
        ["data", "nextCursor"],
    ),
    "thread/revert": ("ThreadRevert", ["threadId", "beforeTurnId"], []),
    "thread/name/set": ("ThreadSetName", ["threadId", "name"], []),
    "thread/archive": ("ThreadArchive", ["threadId"], []),
    "thread/unarchive": ("ThreadUnarchive", ["threadId"], []),
    "thread/delete": ("ThreadDelete", ["threadId"], []),
    "thread/unsubscribe": ("ThreadUnsubscribe", ["threadId"], []),
    "thread/compact/start": ("ThreadCompactStart", ["threadId"], []),
    "thread/settings/update": (
        "ThreadSettingsUpdate",
        ["threadId", "model", "effort", "approvalPolicy", "permissions", "collaborationMode"],
        [],
    ),
    "thread/backgroundTerminals/list": ("ThreadBackgroundTerminalsList", ["threadId"], ["data"]),
    "thread/backgroundTerminals/terminate": (
        "ThreadBackgroundTerminalsTerminate",
        ["threadId", "processId"],
        ["terminated"],
    ),
    "thread/loaded/list": ("ThreadLoadedList", [], []),
    "turn/start": ("TurnStart", ["threadId", "clientUserMessageId", "input"], ["turn.id"]),
    "turn/interrupt": ("TurnInterrupt", ["threadId", "turnId"], []),
    "review/start": ("ReviewStart", ["threadId", "target"], []),
    "model/list": ("ModelList", [], ["data"]),
    "skills/list": ("SkillsList", ["cwds"], ["data"]),
    "config/read": ("ConfigRead", ["cwd"], ["config.developer_instructions"]),
    "account/read": ("GetAccount", [], ["account", "requiresOpenaiAuth"]),
    "account/login/start": ("LoginAccount", [], []),
    "account/login/cancel": ("CancelLoginAccount", ["loginId"], []),
    "account/logout": ("LogoutAccount", [], []),
}

NOTIFICATIONS: dict[str, tuple[str, list[str]]] = {
    "thread/status/changed": ("ThreadStatusChanged", ["threadId", "status"]),
    "thread/settings/updated": (
        "ThreadSettingsUpdated",
        ["threadId", *(f"threadSettings.{name}" for name in ("model", "effort", "approvalPolicy", "sandboxPolicy"))],
    ),
    "thread/closed": ("ThreadClosed", ["threadId"]),
    "turn/started": ("TurnStarted", ["threadId", "turn.id"]),
    "turn/completed": ("TurnCompleted", ["threadId", "turn.id", "turn.status", "turn.error"]),
    "item/started": ("ItemStarted", ["threadId", "turnId", "item"]),
    "item/completed": ("ItemCompleted", ["threadId", "turnId", "item"]),
    "hook/completed": ("HookCompleted", ["threadId", "run.status", "run.entries"]),
    "serverRequest/resolved": ("ServerRequestResolved", ["threadId", "requestId"]),
    "skills/changed": ("SkillsChanged", []),
    "account/updated": ("AccountUpdated", []),
    "account/login/completed": ("AccountLoginCompleted", ["loginId", "success", "error"]),
}

TYPES: dict[tuple[str, str], list[str]] = {
    ("ModelListResponse", "Model"): [
        "model",
        "displayName",
        "description",
        "hidden",
        "supportedReasoningEfforts",
        "defaultReasoningEffort",
    ],
    ("SkillsListResponse", "SkillMetadata"): ["name", "description", "path", "enabled", "interface"],
    ("ThreadItemsListResponse", "ThreadItemEntry"): ["item", "turnId"],
    ("ThreadTurnsListResponse", "Turn"): ["id", "status", "items"],
    ("ThreadBackgroundTerminalsListResponse", "ThreadBackgroundTerminal"): ["itemId", "processId"],
}


@pytest.fixture(scope="module")
def schema() -> Any:
    with codex_folder() as folder:
        env = codex_environment(folder, None)
        out = folder / "schema"
        command = [env["CODEX_PATH"], "app-server", "generate-json-schema", "--experimental", "--out", str(out)]
        subprocess.run(command, env=env, check=True, capture_output=True)
        yield {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in Path(out).rglob("*.json")}


def methods(schema: Mapping[str, Any], name: str) -> set[str]:
    return {entry["properties"]["method"]["enum"][0] for entry in schema[name]["oneOf"]}


def resolve(root: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Through references, and through "or null"."""
    while "properties" not in node:
        if "$ref" in node:
            node = root["definitions"][node["$ref"].rpartition("/")[2]]
        elif options := node.get("anyOf") or node.get("allOf"):
            node = next(option for option in options if option.get("type") != "null")
        else:
            break
    return node


def missing(root: Mapping[str, Any], fields: list[str]) -> list[str]:
    found: list[str] = []
    for field in fields:
        node = root
        for part in field.split("."):
            properties = resolve(root, node).get("properties", {})
            if part not in properties:
                found.append(field)
                break
            node = properties[part]
    return found


@pytest.mark.parametrize("method", METHODS)
def test_request(schema: dict[str, Any], method: str) -> None:
    name, params, result = METHODS[method]
    assert method in methods(schema, "ClientRequest")
    if params:
        assert missing(schema[f"{name}Params"], params) == []
    if result:
        assert missing(schema[f"{name}Response"], result) == []


@pytest.mark.parametrize("method", NOTIFICATIONS)
def test_notification(schema: dict[str, Any], method: str) -> None:
    name, params = NOTIFICATIONS[method]
    assert method in methods(schema, "ServerNotification")
    assert missing(schema[f"{name}Notification"], params) == []


@pytest.mark.parametrize("key", TYPES, ids=lambda key: key[1])
def test_type(schema: dict[str, Any], key: tuple[str, str]) -> None:
    root = schema[key[0]]
    assert missing({**root, **root["definitions"][key[1]]}, TYPES[key]) == []


def test_values(schema: dict[str, Any]) -> None:
    text = json.dumps(schema["ThreadStatusChangedNotification"])
    assert all(f'"{flag}"' in text for flag in ("active", "idle", "waitingOnApproval", "waitingOnUserInput"))
    text = json.dumps(schema["TurnCompletedNotification"])
    assert all(f'"{status}"' in text for status in ("completed", "interrupted", "failed"))
    text = json.dumps(schema["LoginAccountParams"])
    assert all(f'"{kind}"' in text for kind in ("apiKey", "chatgpt"))
    text = json.dumps(schema["ReviewStartParams"])
    assert all(f'"{kind}"' in text for kind in ("uncommittedChanges", "baseBranch", "commit", "custom"))
    text = json.dumps(schema["TurnStartParams"])
    assert '"skill"' in text


def test_the_questions_that_we_put_to_users_are_server_requests(schema: dict[str, Any]) -> None:
    from sayagain_codex.translate.approvals import METHODS as QUESTIONS

    assert methods(schema, "ServerRequest") >= QUESTIONS
