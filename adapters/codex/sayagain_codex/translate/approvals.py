"""Codex's questions to the user as ACP requests, and the client's results as their answers.

A permission is granted only by an option that was offered and grants it; all else refuses (PER-3). What the client
cannot ask its user is declined, or answered with nothing (ELI-1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sayagain.protocol.loose import Block, Json, as_list, as_mapping, as_text, is_absolute
from sayagain_codex.translate import elicitations
from sayagain_codex.translate.executions import command_call, unwrapped
from sayagain_codex.translate.items import item_updates

__all__ = ["METHODS", "request", "response"]

_PERMISSION: Final = "session/request_permission"

_ACCEPT: Final = "accept"
_SESSION: Final = "acceptForSession"
_ALWAYS: Final = "acceptAlways"
_AMENDMENT: Final = "acceptWithExecpolicyAmendment"
_NETWORK: Final = "applyNetworkPolicyAmendment"
_DECLINE: Final = "decline"
_CANCEL: Final = "cancel"

_PLAIN: Final = {
    _ACCEPT: ("Allow", "allow_once"),
    _SESSION: ("Allow for this session", "allow_always"),
    _DECLINE: ("Reject, and go on", "reject_once"),
    _CANCEL: ("Reject, and stop", "reject_once"),
}

METHODS: Final = frozenset(
    {
        "item/commandExecution/requestApproval",
        "item/fileChange/requestApproval",
        "item/permissions/requestApproval",
        "item/tool/requestUserInput",
        "mcpServer/elicitation/request",
    }
)
"""The server requests that are questions to the user."""


def request(
    session_id: str,
    method: str,
    params: Mapping[str, Any],
    *,
    item: Mapping[str, Any] | None,
    cwd: str = "/",
    capabilities: Mapping[str, Any] | None = None,
) -> tuple[str, Mapping[str, Any]] | None:
    """The ACP method and params for a server request of :data:`METHODS`; ``None``: answer it at once, without a result.

    ``session_id`` is that of the request's thread. ``item`` is the open item that it is about
    (:meth:`LiveTranslator.item_of <sayagain_codex.translate.live.LiveTranslator.item_of>`). ``capabilities`` are the
    client's; without them it is taken to have every mode of elicitation.
    """
    match method:
        case "item/commandExecution/requestApproval":
            return _PERMISSION, _command(session_id, params, item, cwd)
        case "item/fileChange/requestApproval":
            return _PERMISSION, _file_change(session_id, params, item, cwd)
        case "item/permissions/requestApproval":
            return _PERMISSION, _permissions(session_id, params)
        case "mcpServer/elicitation/request" if _is_tool_approval(params):
            return _PERMISSION, _mcp_tool(session_id, params, item, cwd)
        case "mcpServer/elicitation/request":
            return elicitations.mcp_request(session_id, params, capabilities)
        case "item/tool/requestUserInput":
            return elicitations.input_request(session_id, params, capabilities)
        case _:
            return None


def response(method: str, params: Mapping[str, Any], result: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The answer to a server request of :data:`METHODS`; ``result`` is ``None`` when nobody was or could be asked."""
    match method:
        case "item/permissions/requestApproval":
            return _granted(params, _chosen(_permission_options(), result))
        case "mcpServer/elicitation/request" if _is_tool_approval(params):
            return _mcp_answer(_chosen(_mcp_options(params), result))
        case "mcpServer/elicitation/request":
            return elicitations.mcp_response(params, result)
        case "item/tool/requestUserInput":
            return elicitations.input_response(params, result)
        case "item/fileChange/requestApproval":
            return {"decision": _chosen(_file_options(), result)}
        case _:
            offered = _decisions(params)
            chosen = _chosen([option for option, _ in offered], result)
            return {"decision": next(decision for option, decision in offered if option["optionId"] == chosen)}


def _chosen(options: Sequence[Block], result: Mapping[str, Any] | None) -> str:
    """The id of the option that the user chose; declined when it is none of those."""
    outcome = as_mapping(as_mapping(result).get("outcome"))
    chosen = as_text(outcome.get("optionId")) if outcome.get("outcome") == "selected" else ""
    return chosen if chosen in {option["optionId"] for option in options} else _DECLINE


def _option(option_id: str, name: str, kind: str) -> Block:
    return {"optionId": option_id, "name": name, "kind": kind}


def _plain(*decisions: str) -> list[Block]:
    return [_option(decision, *_PLAIN[decision]) for decision in decisions]


def _ask(session_id: str, title: str, params: Json, options: list[Block], call: Block | None) -> Block:
    ask: Block = {"sessionId": session_id, "title": title, "options": options}
    reason = as_text(params.get("reason")) or as_text(params.get("message"))
    if reason.strip() and reason != title:
        ask["description"] = reason
    if call is not None:
        ask["subject"] = {"type": "tool_call", "toolCall": call}
    return ask


def _call(item: Json | None, cwd: str) -> Block | None:
    """The open item as a tool call that waits; ``None`` when there is none: a call made up here would never end."""
    for update in item_updates(item or {}, live=True, cwd=cwd):
        if update["sessionUpdate"] == "tool_call_update":
            del update["sessionUpdate"]
            return {**update, "status": "pending"}
    return None


# Commands


def _command(session_id: str, params: Json, item: Json | None, cwd: str) -> Block:
    call = _call(item, cwd)
    options = [option for option, _ in _decisions(params)]
    host = as_text(as_mapping(params.get("networkApprovalContext")).get("host"))
    command = as_text(params.get("command")) or as_text((item or {}).get("command"))
    if host:
        return _ask(session_id, f"Allow network access to {host}?", params, options, call)
    if params.get("kind") == "writeStdin":
        return _ask(session_id, "Send input to the running command?", params, options, call)
    shown = command_call({**(item or {}), **params, "command": command}, cwd)
    if call is not None and not params.get("approvalId"):
        call |= shown
    title = shown["title"]
    return _ask(session_id, f"Run {title}?" if shown["kind"] == "execute" else f"{title}?", params, options, call)


def _decisions(params: Json) -> list[tuple[Block, object]]:
    """The options, and what Codex gets for each: what it offers, and always a way to refuse and go on.

    Codex takes ``decline`` though it doesn't list it (measured); ``cancel`` ends the turn.
    """
    offered = as_list(params.get("availableDecisions")) or _defaults(params)
    found: list[tuple[Block, object]] = []
    for decision in offered:
        option = _decision_option(decision, sum(1 for o, _ in found if o["optionId"].startswith(_NETWORK)))
        if option is not None and option["optionId"] not in {known["optionId"] for known, _ in found}:
            found.append((option, decision))
    if all(option["optionId"] != _DECLINE for option, _ in found):
        end = next((i for i, (option, _) in enumerate(found) if option["optionId"] == _CANCEL), len(found))
        found.insert(end, (_plain(_DECLINE)[0], _DECLINE))
    return found


def _defaults(params: Json) -> list[object]:
    """What an older app-server takes, which lists nothing."""
    found: list[object] = [_ACCEPT, _SESSION]
    if prefix := as_list(params.get("proposedExecpolicyAmendment")):
        found.append({_AMENDMENT: {"execpolicy_amendment": prefix}})
    amendments = as_list(params.get("proposedNetworkPolicyAmendments"))
    found += [{_NETWORK: {"network_policy_amendment": amendment}} for amendment in amendments]
    return [*found, _DECLINE, _CANCEL]


def _decision_option(decision: object, index: int) -> Block | None:
    if isinstance(decision, str):
        return _plain(decision)[0] if decision in _PLAIN else None
    fields = as_mapping(decision)
    if _AMENDMENT in fields:
        words = [as_text(word) for word in as_list(as_mapping(fields[_AMENDMENT]).get("execpolicy_amendment"))]
        prefix = unwrapped(" ".join(words))
        return _option(_AMENDMENT, f"Always allow commands that start with `{prefix}`", "allow_always")
    if _NETWORK in fields:
        amendment = as_mapping(as_mapping(fields[_NETWORK]).get("network_policy_amendment"))
        host, deny = as_text(amendment.get("host")) or "this host", amendment.get("action") == "deny"
        name = f"Never allow access to {host}" if deny else f"Always allow access to {host}"
        return _option(f"{_NETWORK}:{index}", name, "reject_always" if deny else "allow_always")
    return None


# File changes


def _file_options() -> list[Block]:
    return _plain(_ACCEPT, _SESSION, _DECLINE, _CANCEL)


def _file_change(session_id: str, params: Json, item: Json | None, cwd: str) -> Block:
    # A command that runs on may have its id, where the model service counts.
    call = _call(item, cwd) if as_mapping(item).get("type") == "fileChange" else None
    root = as_text(params.get("grantRoot"))
    title = f"Allow changes in {root}?" if root else f"{call['title']}?" if call else "Edit files?"
    return _ask(session_id, title, params, _file_options(), call)


# Permission profiles


def _permission_options() -> list[Block]:
    return [
        _option(_ACCEPT, "Allow for this turn", "allow_once"),
        _option(_SESSION, "Allow for this session", "allow_always"),
        _option(_DECLINE, "Reject", "reject_once"),
    ]


def _permissions(session_id: str, params: Json) -> Block:
    ask = _ask(session_id, "Grant permissions?", params, _permission_options(), None)
    wanted = "\n".join(_wanted(as_mapping(params.get("permissions"))))
    ask["description"] = "\n\n".join(text for text in (as_text(params.get("reason")), wanted) if text.strip())
    return ask


def _wanted(profile: Json) -> list[str]:
    lines = ["- network access"] if as_mapping(profile.get("network")).get("enabled") is True else []
    files = as_mapping(profile.get("fileSystem"))
    for access in ("read", "write"):
        lines += [f"- {access} {path}" for path in map(as_text, as_list(files.get(access))) if path]
    for entry in map(as_mapping, as_list(files.get("entries"))):
        path = entry.get("path")
        texts = [as_text(path), *map(as_text, as_mapping(path).values())]
        named = next((text for text in texts if is_absolute(text)), "")
        line = f"- {as_text(entry.get('access'))} {named}"
        if named and line not in lines:
            lines.append(line)
    return lines


def _granted(params: Json, chosen: str) -> Block:
    if chosen == _DECLINE:
        return {"permissions": {}, "scope": "turn"}
    profile = as_mapping(params.get("permissions"))
    granted = {name: profile[name] for name in ("network", "fileSystem") if profile.get(name) is not None}
    return {"permissions": granted, "scope": "session" if chosen == _SESSION else "turn"}


# Tools of MCP servers: Codex asks for them by an elicitation with an empty form


def _is_tool_approval(params: Json) -> bool:
    return as_mapping(params.get("_meta")).get("codex_approval_kind") == "mcp_tool_call"


def _mcp_options(params: Json) -> list[Block]:
    persist = as_mapping(params.get("_meta")).get("persist")
    lasting = {as_text(persist), *map(as_text, as_list(persist))}
    options = _plain(_ACCEPT)
    if "session" in lasting:
        options += _plain(_SESSION)
    if "always" in lasting:
        options.append(_option(_ALWAYS, "Always allow", "allow_always"))
    return [*options, *_plain(_DECLINE, _CANCEL)]


def _mcp_tool(session_id: str, params: Json, item: Json | None, cwd: str) -> Block:
    call = _call(item, cwd)
    if call is not None:
        del call["status"]  # the request names no item, so nothing would tell that it runs again
    title = f"Allow {call['title']}?" if call else f"Allow a tool of {as_text(params.get('serverName'))}?"
    return _ask(session_id, title, params, _mcp_options(params), call)


def _mcp_answer(chosen: str) -> Block:
    if chosen in (_DECLINE, _CANCEL):
        return {"action": chosen, "content": None, "_meta": None}
    lasting = {_SESSION: "session", _ALWAYS: "always"}.get(chosen)
    return {"action": "accept", "content": {}, "_meta": {"persist": lasting} if lasting else None}
