"""The command line of the app-server, and the parameters of a thread: one place for every setting that we rely on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sayagain.runtime.seam import SessionSetup

__all__ = [
    "API_KEY_VARIABLES",
    "CLIENT_INFO",
    "command_line",
    "environment",
    "home",
    "mcp_servers",
    "sqlite_home",
    "thread_params",
]

API_KEY_VARIABLES: Final = ("CODEX_API_KEY", "OPENAI_API_KEY")
"""Where an API key is looked for, in this order."""

CLIENT_INFO: Final = {"name": "sayagain", "title": "sayagain", "version": "1"}
"""Who we are in ``initialize``; Codex repeats the name in its ``userAgent``."""

_EPHEMERAL_LOGIN: Final = ("-c", 'cli_auth_credentials_store="ephemeral"')
"""Keeps an API key in the app-server's memory (measured); it would hide a login that is stored, too."""


def command_line(executable: str, *, ephemeral_login: bool) -> list[str]:
    """The arguments of the app-server."""
    return [
        executable,
        "app-server",
        # Else a prompt that becomes a steer cuts the answer in flight, which is lost then (measured).
        "--disable",
        "instant_interrupt",
        # A closed session is unloaded at once, its background terminals end, and another process may load it:
        # otherwise this process would keep its writer lock for half an hour (measured).
        "-c",
        "thread_unload_delay_secs=0",
        *(_EPHEMERAL_LOGIN if ephemeral_login else ()),
    ]


def environment(env: Mapping[str, str], *, ephemeral_login: bool) -> dict[str, str]:
    """The user's environment.

    An API key that is kept in memory is taken out of it: Codex writes a snapshot of its shell's variables to its home
    folder (measured).
    """
    return {name: value for name, value in env.items() if not (ephemeral_login and name in API_KEY_VARIABLES)}


def home(env: Mapping[str, str]) -> Path:
    """Codex's folder: ``CODEX_HOME``, else ``~/.codex`` (``HOME`` of ``env`` first)."""
    if configured := env.get("CODEX_HOME"):
        return Path(configured)
    return _user_home(env) / ".codex"


def _user_home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def sqlite_home(env: Mapping[str, str], config: Mapping[str, Any]) -> Path:
    """Where Codex keeps its databases: by its configuration, else the environment, else in its folder (measured)."""
    configured = config.get("sqlite_home")
    if isinstance(configured, str) and configured:
        return Path(configured)
    given = env.get("CODEX_SQLITE_HOME")
    if not given:
        return home(env)
    if given.startswith("~/"):
        return _user_home(env) / given[2:]
    return Path(os.sep) / given  # where the process is started


def thread_params(setup: SessionSetup) -> dict[str, Any]:
    """What ``thread/start``, ``thread/resume`` and ``thread/fork`` have in common.

    Model, policies and sandbox are left to Codex: a new thread has the user's configuration, a stored one what it had
    (measured: both come back on a resume that names none). A stored thread keeps the instructions that were appended
    when it was new, whatever a resume says; those that override are taken anew (measured).
    """
    params: dict[str, Any] = {
        "cwd": setup.cwd,
        "runtimeWorkspaceRoots": [setup.cwd, *setup.additional_directories],
        "config": {f"mcp_servers.{name}": server for name, server in mcp_servers(setup.mcp_servers).items()},
    }
    if setup.system_prompt is not None:
        text = "\n\n".join(block["text"] for block in setup.system_prompt["content"])
        field = "developerInstructions" if setup.system_prompt["mode"] == "append" else "baseInstructions"
        params[field] = text
    return params


def mcp_servers(servers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The client's MCP servers as Codex's configuration has them, by a name that it accepts."""
    result: dict[str, dict[str, Any]] = {}
    for server in servers:
        name = _server_name(server["name"], result)
        if server["type"] == "http":
            headers = {header["name"]: header["value"] for header in server.get("headers") or ()}
            result[name] = {"url": server["url"], "http_headers": headers}
        else:
            variables = {variable["name"]: variable["value"] for variable in server.get("env") or ()}
            result[name] = {"command": server["command"], "args": list(server.get("args") or ()), "env": variables}
    return result


def _server_name(name: str, taken: Mapping[str, Any]) -> str:
    """Codex takes letters, digits, ``-`` and ``_``; dots would be read as a path of configuration keys."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "_" for char in name) or "_"
    unique, count = plain, 1
    while unique in taken:
        count += 1
        unique = f"{plain}_{count}"
    return unique
