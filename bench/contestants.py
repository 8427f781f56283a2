"""Who is measured: our agent, and the npm adapter when a folder holds it. Both with one runtime and one stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from bench.client import Client
from sayagain.testing.codex_config import stand_in_config

__all__ = [
    "PEER_VARIABLE",
    "RUNTIMES",
    "Contestant",
    "Runtime",
    "StandIn",
    "find_executable",
    "ours",
    "peer",
    "stand_in",
]

PEER_VARIABLE = "SAYAGAIN_BENCH_PEER"
"""Names the folder whose ``node_modules`` holds the peers and node."""


@dataclass(frozen=True)
class Runtime:
    """What is particular to a runtime: its peer, the variable that names its executable, its model service."""

    name: str
    peer: str
    variable: str
    service: str


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("claude", "claude-agent-acp", "CLAUDE_CODE_EXECUTABLE", "sayagain.testing.messages_api"),
        Runtime("codex", "codex-acp", "CODEX_PATH", "sayagain.testing.responses_api"),
    )
}


@dataclass(frozen=True)
class Contestant:
    """An agent to be measured, with a home of its own."""

    name: str
    version: str
    command: list[str]
    folder: Path
    env: Mapping[str, str] = field(repr=False)
    executable: str
    """The runtime's, the same for both."""

    @property
    def project(self) -> Path:
        """The cwd of every session. The same for both, since it is part of every stored row."""
        return self.folder.parent / "project"

    @property
    def config(self) -> Path:
        """The runtime's own folder: CLAUDE_CONFIG_DIR or CODEX_HOME."""
        return self.folder / "config"

    def start(self) -> Client:
        return Client(self.command, self.env, self.project, self.folder / "stderr.log")


def ours(runtime: Runtime, work: Path, executable: str, url: str) -> Contestant:
    """The console script as it is installed beside this Python."""
    script = shutil.which("sayagain", path=str(Path(sys.executable).parent))
    if script is None:
        raise SystemExit("bench: the sayagain command is not installed beside this Python")
    version = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    python = ".".join(map(str, sys.version_info[:3]))
    return _contestant("ours", f"{version}, Python {python}", [script, runtime.name], runtime, work, executable, url)


def peer(runtime: Runtime, work: Path, executable: str, url: str) -> Contestant | None:
    """The npm adapter below ``$SAYAGAIN_BENCH_PEER``; ``None`` when it is not there."""
    root = os.environ.get(PEER_VARIABLE)
    if not root:
        return None
    package = Path(root).resolve() / "node_modules/@agentclientprotocol" / runtime.peer
    node = Path(root).resolve() / "node_modules/node/bin/node"
    if not (package.is_dir() and node.is_file()):
        return None
    manifest = json.loads((package / "package.json").read_text(encoding="utf-8"))
    node_version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    version = f"{manifest['name']} {manifest['version']}, node {node_version}"
    (entry,) = manifest["bin"].values()
    return _contestant("peer", version, [str(node), str(package / entry)], runtime, work, executable, url)


def find_executable(runtime: Runtime, chosen: str | None) -> tuple[str, str]:
    """The executable that both are given, and its version: the chosen one, or the one that we would take."""
    find = import_module(f"sayagain_{runtime.name}.executable").find_executable
    path: str = find({**os.environ, runtime.variable: chosen} if chosen else os.environ)
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return path, version


@dataclass(frozen=True)
class StandIn:
    """The running model service."""

    url: str
    process: subprocess.Popen[bytes]

    def check(self) -> None:
        """Numbers that were taken without a model are none."""
        if self.process.poll() is not None:
            raise SystemExit("bench: the stand-in for the model service ended; what was measured last is void")


@contextmanager
def stand_in(runtime: Runtime, work: Path) -> Iterator[StandIn]:
    """The model service as a process of its own. A prompt with ``2000 deltas`` in it gets as many."""
    script = work / "script.json"
    steps = [{"when": "2000 deltas", "replies": [[{"text": "word " * 2000, "chunk": 5}]]}]
    script.write_text(json.dumps({"steps": steps}), encoding="utf-8")
    command = [sys.executable, "-m", runtime.service, "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield StandIn(json.loads(process.stdout.readline())["url"], process)
        finally:
            process.terminate()


def _contestant(
    name: str, version: str, command: list[str], runtime: Runtime, work: Path, executable: str, url: str
) -> Contestant:
    folder = work / runtime.name / name
    for part in ("home", "config"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder.parent / "project").mkdir(exist_ok=True)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        runtime.variable: executable,
    }
    if runtime.name == "claude":
        env |= _claude_env(folder, url)
    else:
        (folder / "config" / "config.toml").write_text(stand_in_config(url), encoding="utf-8")
        env["CODEX_HOME"] = str(folder / "config")
    return Contestant(name, version, command, folder, env, executable)


def _claude_env(folder: Path, url: str) -> dict[str, str]:
    """Nothing leaves the machine, and nothing of the user's is read."""
    return {
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy",
    }
