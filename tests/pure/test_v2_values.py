"""Good and bad values of each concept of the wire; a bad one fails with the field that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from sayagain.errors import InvalidParams
from sayagain.protocol.v2 import (
    auth,
    commands,
    config_options,
    content,
    diffs,
    elicitation,
    initialize,
    mcp,
    permissions,
    plans,
    prompts,
    providers,
    requests,
    scalars,
    sessions,
    state,
    terminals,
    tools,
    updates,
)
from sayagain.protocol.v2.validate import validate

TEXT = {"type": "text", "text": "hello"}
INFO = {"name": "client", "version": "1"}
OPTION = {"optionId": "a", "name": "Allow", "kind": "allow_once"}
SELECT = {
    "type": "select",
    "configId": "model",
    "name": "Model",
    "currentValue": "a",
    "options": [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}],
}
FORM = {"mode": "form", "message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}


def session(**fields: Any) -> dict[str, Any]:
    return {"cwd": "/work", **fields}


def update(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"sessionId": "s", "update": {"sessionUpdate": kind, **fields}}


def select(**fields: Any) -> dict[str, Any]:
    return {**SELECT, **fields}


GOOD: list[tuple[str, Any, Any]] = [
    ("object with meta", scalars.Object, {"_meta": {"x": [1, None]}, "unknown": 1}),
    ("object, meta null", scalars.Object, {"_meta": None}),
    ("text", content.ContentBlock, {**TEXT, "annotations": {"priority": 1, "audience": ["user", "_robot"]}}),
    ("text, empty", content.ContentBlock, {"type": "text", "text": ""}),
    ("text, null annotations", content.ContentBlock, {**TEXT, "annotations": None}),
    ("image", content.ContentBlock, {"type": "image", "data": "aGk=", "mimeType": "image/png", "uri": None}),
    ("audio", content.ContentBlock, {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}),
    ("link", content.ContentBlock, {"type": "resource_link", "name": "a", "uri": "file:///a", "size": 2**64 - 1}),
    ("text resource", content.ContentBlock, {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}}),
    ("blob resource", content.ContentBlock, {"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk="}}),
    ("unknown block", content.ContentBlock, {"type": "_video", "frames": [1, 2]}),
    ("initialize", initialize.InitializeRequest, {"protocolVersion": 2, "info": INFO}),
    ("initialize, version 0", initialize.InitializeRequest, {"protocolVersion": 0, "info": INFO}),
    (
        "initialize, capabilities",
        initialize.InitializeRequest,
        {"protocolVersion": 65535, "info": INFO, "capabilities": {"auth": {"terminal": {}}, "elicitation": None}},
    ),
    ("initialize, null", initialize.InitializeRequest, {"protocolVersion": 2, "info": INFO, "capabilities": None}),
    (
        "initialize response",
        initialize.InitializeResponse,
        {
            "protocolVersion": 2,
            "info": INFO,
            "capabilities": {"session": {"prompt": {"image": {}}, "_vendor": 1}},
            "authMethods": [
                {"type": "agent", "methodId": "a", "name": "A"},
                {"type": "terminal", "methodId": "t", "name": "T", "env": [{"name": "A", "value": "1"}]},
                {"type": "_other", "methodId": "o", "name": "O"},
            ],
        },
    ),
    ("new", sessions.NewSessionRequest, session()),
    ("new, UNC", sessions.NewSessionRequest, {"cwd": "\\\\server\\share\\project"}),
    ("new, drive", sessions.NewSessionRequest, {"cwd": "C:\\project"}),
    ("new, drive with slash", sessions.NewSessionRequest, {"cwd": "c:/project"}),
    ("new, null lists", sessions.NewSessionRequest, session(mcpServers=None, additionalDirectories=None)),
    (
        "new, servers",
        sessions.NewSessionRequest,
        session(
            mcpServers=[
                {"type": "stdio", "name": "a", "command": "/bin/a", "args": ["-x"], "env": None},
                {"type": "http", "name": "b", "url": "https://b", "headers": [{"name": "A", "value": "1"}]},
                {"type": "acp", "name": "c", "serverId": "1"},
                {"type": "_carrier_pigeon"},
            ]
        ),
    ),
    ("new, prompt", sessions.NewSessionRequest, session(systemPrompt={"mode": "append", "content": [TEXT]})),
    (
        "equal env names",
        mcp.McpServer,
        {
            "type": "stdio",
            "name": "a",
            "command": "/a",
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        },
    ),
    ("resume", sessions.ResumeSessionRequest, session(sessionId="s", replayFrom={"type": "start"})),
    ("resume, null", sessions.ResumeSessionRequest, session(sessionId="s", replayFrom=None)),
    ("resume, unknown cursor", sessions.ResumeSessionRequest, session(sessionId="s", replayFrom={"type": "end"})),
    ("list", sessions.ListSessionsRequest, {}),
    ("list, empty cursor", sessions.ListSessionsRequest, {"cursor": "", "cwd": None, "archived": "only"}),
    ("listed", sessions.ListSessionsResponse, {"sessions": [{"sessionId": "s", "cwd": "/a", "archived": False}]}),
    ("status", sessions.SessionStatusResponse, {"status": "open", "state": {"state": "running"}}),
    ("prompt", prompts.PromptRequest, {"sessionId": "s", "prompt": [TEXT]}),
    ("prompt, key", prompts.PromptRequest, {"sessionId": "s", "prompt": [TEXT], "idempotencyKey": "k" * 255}),
    ("prompt, wide key", prompts.PromptRequest, {"sessionId": "s", "prompt": [TEXT], "idempotencyKey": "🔑" * 255}),
    ("prompt, null key", prompts.PromptRequest, {"sessionId": "s", "prompt": [TEXT], "idempotencyKey": None}),
    ("select", config_options.SessionConfigOption, SELECT),
    (
        "groups",
        config_options.SessionConfigOption,
        select(options=[{"groupId": "g", "name": "G", "options": SELECT["options"]}]),
    ),
    (
        "boolean option",
        config_options.SessionConfigOption,
        {"type": "boolean", "configId": "b", "name": "B", "currentValue": False, "category": "_mine"},
    ),
    ("unknown option", config_options.SessionConfigOption, {"type": "_slider", "configId": "s", "name": "S"}),
    (
        "set value",
        config_options.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "id", "value": "v"},
    ),
    (
        "set boolean",
        config_options.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "boolean", "value": True},
    ),
    (
        "set unknown",
        config_options.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "_number", "value": 1.5},
    ),
    ("command", commands.AvailableCommand, {"type": "command", "name": "plan", "description": ""}),
    ("unknown command", commands.AvailableCommand, {"type": "_x", "name": "plan", "description": ""}),
    ("chunk", updates.UpdateSessionNotification, update("agent_message_chunk", messageId="m", content=TEXT)),
    ("message", updates.UpdateSessionNotification, update("user_message", messageId="m")),
    ("message, clears", updates.UpdateSessionNotification, update("agent_thought", messageId="m", content=None)),
    ("marker", updates.UpdateSessionNotification, update("replay_complete")),
    ("marker, meta", updates.UpdateSessionNotification, update("replay_complete", _meta={})),
    ("unknown update", updates.UpdateSessionNotification, update("_weather", sun=True)),
    ("idle", updates.UpdateSessionNotification, update("state_update", state="idle", stopReason="end_turn")),
    (
        "idle, error",
        updates.UpdateSessionNotification,
        update("state_update", state="idle", stopReason="error", error={"code": -32603, "message": "x"}),
    ),
    (
        "running, background",
        updates.UpdateSessionNotification,
        update(
            "state_update",
            state="running",
            background=[
                {"type": "terminal", "terminalId": "t"},
                {"type": "subagent", "sessionId": "c"},
                {"type": "_other"},
            ],
        ),
    ),
    ("custom state", updates.UpdateSessionNotification, update("state_update", state="_sleeping")),
    ("tool call", updates.UpdateSessionNotification, update("tool_call_update", toolCallId="t", title=None)),
    (
        "tool call, content",
        updates.UpdateSessionNotification,
        update(
            "tool_call_update",
            toolCallId="t",
            kind="edit",
            status="completed",
            content=[
                {"type": "content", "content": TEXT},
                {"type": "diff", "changes": [{"operation": "move", "oldPath": "/a", "path": "/b"}]},
                {"type": "terminal", "terminalId": "t"},
                {"type": "session", "sessionId": "c"},
            ],
            locations=[{"path": "/a", "line": 1}],
            rawInput=[1, "x", None],
            rawOutput=None,
        ),
    ),
    (
        "terminal",
        updates.UpdateSessionNotification,
        update("terminal_update", terminalId="t", cwd="/a", exitStatus={"exitCode": -1}, size={"cols": 1, "rows": 1}),
    ),
    (
        "plan",
        updates.UpdateSessionNotification,
        update("plan_update", plan={"type": "items", "planId": "p", "entries": []}),
    ),
    ("usage", updates.UpdateSessionNotification, update("usage_update", used=0, size=1, cost=None)),
    (
        "cost",
        updates.UpdateSessionNotification,
        update("usage_update", used=0, size=1, cost={"amount": 1, "currency": "EUR"}),
    ),
    ("notice", updates.UpdateSessionNotification, update("notice", severity="info", title="x")),
    (
        "subagent",
        updates.UpdateSessionNotification,
        update("subagent_update", sessionId="c", capabilities={}, state={"state": "unknown"}),
    ),
    ("unknown change", diffs.DiffChange, {"operation": "_chmod"}),
    ("command subject", permissions.RequestPermissionSubject, {"type": "command", "command": "ls", "cwd": "/a"}),
    (
        "permission",
        permissions.RequestPermissionRequest,
        {
            "sessionId": "s",
            "title": "May I?",
            "options": [OPTION, {**OPTION, "optionId": "b"}],
            "subject": {"type": "tool_call", "toolCall": {"toolCallId": "t"}},
        },
    ),
    ("selected", permissions.RequestPermissionResponse, {"outcome": {"outcome": "selected", "optionId": "a"}}),
    ("unknown outcome", permissions.RequestPermissionResponse, {"outcome": {"outcome": "_later"}}),
    ("form for a session", elicitation.CreateElicitationRequest, {**FORM, "sessionId": "s", "toolCallId": None}),
    ("form for a request", elicitation.CreateElicitationRequest, {**FORM, "requestId": 7}),
    (
        "page",
        elicitation.CreateElicitationRequest,
        {"mode": "url", "message": "m", "elicitationId": "e", "url": "https://a", "requestId": "r"},
    ),
    ("accept", elicitation.CreateElicitationResponse, {"action": "accept", "content": {"a": 1, "b": ["x"]}}),
    ("decline", elicitation.CreateElicitationResponse, {"action": "decline"}),
    (
        "titled items",
        elicitation.ElicitationPropertySchema,
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
    ),
    (
        "bare items",
        elicitation.ElicitationPropertySchema,
        {"type": "array", "items": {"type": "string", "enum": ["a"]}},
    ),
    ("provider", providers.SetProviderRequest, {"providerId": "p", "apiType": "_x", "baseUrl": "https://a"}),
    ("cancel", requests.CancelRequestNotification, {"requestId": -(2**63)}),
    ("cancel, text id", requests.CancelRequestNotification, {"requestId": ""}),
    ("MCP null result", mcp.MessageMcpResponse, {"result": None}),
    ("account", auth.AuthStatusResponse, {"state": "authenticated", "accounts": [{"label": "a"}]}),
]

BAD: list[tuple[str, Any, Any, str]] = [
    ("no object", scalars.Object, [], ""),
    ("meta", scalars.Object, {"_meta": []}, "_meta"),
    ("block", content.ContentBlock, "text", ""),
    ("block without type", content.ContentBlock, {"text": "x"}, "type"),
    ("block type", content.ContentBlock, {"type": 1}, "type"),
    ("block type, list", content.ContentBlock, {"type": []}, "type"),
    ("known block", content.ContentBlock, {"type": "text"}, "text"),
    ("text", content.ContentBlock, {"type": "text", "text": 1}, "text"),
    ("priority", content.ContentBlock, {**TEXT, "annotations": {"priority": 1.5}}, "annotations.priority"),
    ("priority, text", content.ContentBlock, {**TEXT, "annotations": {"priority": "1"}}, "annotations.priority"),
    (
        "priority, boolean",
        content.ContentBlock,
        {**TEXT, "annotations": {"priority": True}},
        "annotations.priority",
    ),
    ("size", content.ContentBlock, {"type": "resource_link", "name": "a", "uri": "a:b", "size": -1}, "size"),
    ("size, float", content.ContentBlock, {"type": "resource_link", "name": "a", "uri": "a:b", "size": 1.0}, "size"),
    ("resource", content.ContentBlock, {"type": "resource", "resource": {"uri": "a:b"}}, "resource.text"),
    ("blob", content.ContentBlock, {"type": "resource", "resource": {"uri": "a:b", "blob": 1}}, "resource.blob"),
    ("version", initialize.InitializeRequest, {"protocolVersion": "2", "info": INFO}, "protocolVersion"),
    ("version, boolean", initialize.InitializeRequest, {"protocolVersion": True, "info": INFO}, "protocolVersion"),
    ("version, float", initialize.InitializeRequest, {"protocolVersion": 2.0, "info": INFO}, "protocolVersion"),
    ("version, large", initialize.InitializeRequest, {"protocolVersion": 65536, "info": INFO}, "protocolVersion"),
    ("version, small", initialize.InitializeRequest, {"protocolVersion": -1, "info": INFO}, "protocolVersion"),
    ("no info", initialize.InitializeRequest, {"protocolVersion": 2}, "info"),
    ("no version", initialize.InitializeRequest, {"protocolVersion": 2, "info": {"name": "x"}}, "info.version"),
    (
        "equal env names",
        auth.AuthMethod,
        {
            "type": "terminal",
            "methodId": "t",
            "name": "T",
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        },
        "env",
    ),
    ("unknown method, no id", auth.AuthMethod, {"type": "_x", "name": "x"}, "methodId"),
    ("no cwd", sessions.NewSessionRequest, {}, "cwd"),
    ("relative cwd", sessions.NewSessionRequest, {"cwd": "work"}, "cwd"),
    ("empty cwd", sessions.NewSessionRequest, {"cwd": ""}, "cwd"),
    ("cwd, URI", sessions.NewSessionRequest, {"cwd": "file:///work"}, "cwd"),
    ("cwd, drive only", sessions.NewSessionRequest, {"cwd": "C:work"}, "cwd"),
    ("cwd, NUL", sessions.NewSessionRequest, {"cwd": "/a\0b"}, "cwd"),
    ("directory", sessions.NewSessionRequest, session(additionalDirectories=["/a", "b"]), "additionalDirectories.1"),
    ("directories", sessions.NewSessionRequest, session(additionalDirectories="/a"), "additionalDirectories"),
    ("server", sessions.NewSessionRequest, session(mcpServers=[{"name": "a"}]), "mcpServers.0.type"),
    (
        "server command",
        sessions.NewSessionRequest,
        session(mcpServers=[{"type": "stdio", "name": "a", "command": "a"}]),
        "mcpServers.0.command",
    ),
    (
        "server env",
        sessions.NewSessionRequest,
        session(mcpServers=[{"type": "stdio", "name": "a", "command": "/a", "env": {"A": "1"}}]),
        "mcpServers.0.env",
    ),
    ("cursor", sessions.ResumeSessionRequest, session(sessionId="s", replayFrom="start"), "replayFrom"),
    ("cursor type", sessions.ResumeSessionRequest, session(sessionId="s", replayFrom={}), "replayFrom.type"),
    ("list cwd", sessions.ListSessionsRequest, {"cwd": "a"}, "cwd"),
    ("list cursor", sessions.ListSessionsRequest, {"cursor": 1}, "cursor"),
    ("no session", prompts.PromptRequest, {"prompt": [TEXT]}, "sessionId"),
    ("empty prompt", prompts.PromptRequest, {"sessionId": "s", "prompt": []}, "prompt"),
    ("prompt block", prompts.PromptRequest, {"sessionId": "s", "prompt": [TEXT, {"type": "text"}]}, "prompt.1.text"),
    ("title", sessions.SetSessionTitleRequest, {"sessionId": "s", "title": None}, "title"),
    ("no options", config_options.SessionConfigOption, select(options=[]), "options"),
    ("foreign value", config_options.SessionConfigOption, select(currentValue="c"), ""),
    ("equal values", config_options.SessionConfigOption, select(options=[*SELECT["options"], *SELECT["options"]]), ""),
    (
        "empty group",
        config_options.SessionConfigOption,
        select(options=[{"groupId": "g", "name": "G", "options": []}]),
        "options.0.options",
    ),
    (
        "boolean option",
        config_options.SessionConfigOption,
        {"type": "boolean", "configId": "b", "name": "B", "currentValue": "true"},
        "currentValue",
    ),
    (
        "set boolean",
        config_options.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "boolean", "value": 1},
        "value",
    ),
    (
        "set without value",
        config_options.SetSessionConfigOptionRequest,
        {"sessionId": "s", "configId": "c", "type": "_x"},
        "value",
    ),
    ("slash", commands.AvailableCommand, {"type": "command", "name": "/plan", "description": ""}, "name"),
    ("space", commands.AvailableCommand, {"type": "command", "name": "a b", "description": ""}, "name"),
    (
        "equal commands",
        updates.UpdateSessionNotification,
        update(
            "available_commands_update", availableCommands=[{"type": "command", "name": "a", "description": ""}] * 2
        ),
        "update.availableCommands",
    ),
    ("update", updates.UpdateSessionNotification, {"sessionId": "s", "update": None}, "update"),
    ("update kind", updates.UpdateSessionNotification, {"sessionId": "s", "update": {}}, "update.sessionUpdate"),
    ("no message id", updates.UpdateSessionNotification, update("agent_message", content=[]), "update.messageId"),
    (
        "null message id",
        updates.UpdateSessionNotification,
        update("agent_message_chunk", messageId=None, content=TEXT),
        "update.messageId",
    ),
    ("state", updates.UpdateSessionNotification, update("state_update"), "update.state"),
    (
        "background",
        updates.UpdateSessionNotification,
        update("state_update", state="idle", background=[{"type": "terminal"}]),
        "update.background.0.terminalId",
    ),
    (
        "change",
        updates.UpdateSessionNotification,
        update("tool_call_content_chunk", toolCallId="t", content={"type": "diff", "changes": [{"operation": "add"}]}),
        "update.content.changes.0.path",
    ),
    (
        "line",
        updates.UpdateSessionNotification,
        update("tool_call_update", toolCallId="t", locations=[{"path": "/a", "line": 0}]),
        "update.locations.0.line",
    ),
    (
        "terminal size",
        updates.UpdateSessionNotification,
        update("terminal_update", terminalId="t", size={"cols": 0, "rows": 1}),
        "update.size.cols",
    ),
    ("usage", updates.UpdateSessionNotification, update("usage_update", used=None, size=1), "update.used"),
    (
        "cost",
        updates.UpdateSessionNotification,
        update("usage_update", used=0, size=1, cost={"amount": float("nan"), "currency": "EUR"}),
        "update.cost.amount",
    ),
    ("notice", updates.UpdateSessionNotification, update("notice", severity="info", title=""), "update.title"),
    (
        "plan",
        updates.UpdateSessionNotification,
        update("plan_update", plan={"type": "_x"}),
        "update.plan.planId",
    ),
    ("exit code", terminals.TerminalExitStatus, {"exitCode": 2**63}, "exitCode"),
    ("terminal id", tools.ToolCallContent, {"type": "terminal"}, "terminalId"),
    ("error code", state.StateUpdate, {"state": "idle", "error": {"code": 2**31, "message": ""}}, "error.code"),
    ("plan entry", plans.PlanEntry, {"content": "", "priority": "high", "status": 1}, "status"),
    (
        "no permission options",
        permissions.RequestPermissionRequest,
        {"sessionId": "s", "title": "t", "options": []},
        "options",
    ),
    (
        "equal permission options",
        permissions.RequestPermissionRequest,
        {"sessionId": "s", "title": "t", "options": [OPTION, OPTION]},
        "options",
    ),
    ("selected", permissions.RequestPermissionResponse, {"outcome": {"outcome": "selected"}}, "outcome.optionId"),
    (
        "subject cwd",
        permissions.RequestPermissionSubject,
        {"type": "command", "command": "ls", "cwd": "."},
        "cwd",
    ),
    ("no scope", elicitation.CreateElicitationRequest, FORM, ""),
    ("two scopes", elicitation.CreateElicitationRequest, {**FORM, "sessionId": "s", "requestId": 1}, ""),
    ("null scope", elicitation.CreateElicitationRequest, {**FORM, "sessionId": None}, "sessionId"),
    (
        "form type",
        elicitation.CreateElicitationRequest,
        {**FORM, "sessionId": "s", "requestedSchema": {"type": "array", "properties": {}}},
        "requestedSchema.type",
    ),
    (
        "form field",
        elicitation.CreateElicitationRequest,
        {**FORM, "sessionId": "s", "requestedSchema": {"type": "object", "properties": {"a": {"type": "array"}}}},
        "requestedSchema.properties.a.items",
    ),
    ("content", elicitation.CreateElicitationResponse, {"action": "accept", "content": []}, "content"),
    (
        "headers",
        providers.SetProviderRequest,
        {"providerId": "p", "apiType": "a", "baseUrl": "b", "headers": {"h": 1}},
        "headers.h",
    ),
    ("request id", requests.CancelRequestNotification, {"requestId": None}, "requestId"),
    ("request id, float", requests.CancelRequestNotification, {"requestId": 1.0}, "requestId"),
    ("request id, boolean", requests.CancelRequestNotification, {"requestId": True}, "requestId"),
    ("request id, large", requests.CancelRequestNotification, {"requestId": 2**63}, "requestId"),
    ("MCP without outcome", mcp.MessageMcpResponse, {}, ""),
    ("MCP null error", mcp.MessageMcpResponse, {"error": None}, "error"),
]


@pytest.mark.parametrize(("wire_type", "value"), [row[1:] for row in GOOD], ids=[row[0] for row in GOOD])
def test_good_values_come_back_as_they_are(wire_type: Any, value: Any) -> None:
    before = repr(value)
    assert validate(wire_type, value) is value
    assert repr(value) == before


@pytest.mark.parametrize(("wire_type", "value", "field"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_values_fail_with_their_field(wire_type: Any, value: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        validate(wire_type, value)
    assert caught.value.field == field
    assert caught.value.reason
