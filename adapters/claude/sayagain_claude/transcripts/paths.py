"""Where Claude Code keeps a session: ``<config>/projects/<folder per cwd>/<session id>.jsonl``.

A session stays in the folder of the cwd in which it was made, also when it is resumed from another one (measured), so
a lookup goes over all project folders. It costs one ``stat`` a folder, never a listing of their files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sayagain.errors import HistoryUnreadable

__all__ = [
    "SubagentFiles",
    "config_dir",
    "find",
    "folder_name",
    "is_session_id",
    "list_subagents",
    "preference",
    "project_folders",
    "subagent_files",
]

_SESSION_ID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NO_ALNUM: Final = re.compile(r"[^A-Za-z0-9]")
_FOLDER_NAME_LENGTH: Final = 200
_AGENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class SubagentFiles(NamedTuple):
    """The two files of a subagent; either may be missing."""

    agent_id: str
    transcript: Path
    meta: Path


def config_dir(env: Mapping[str, str]) -> Path:
    """Claude Code's folder: ``CLAUDE_CONFIG_DIR``, else ``~/.claude`` (``HOME`` of ``env`` first)."""
    configured = env.get("CLAUDE_CONFIG_DIR")
    if configured:
        return Path(configured)
    home = env.get("HOME")
    return (Path(home) if home else Path.home()) / ".claude"


def is_session_id(session_id: str) -> bool:
    """Whether ``session_id`` has the one form that Claude Code uses: a hyphenated UUID. Anything else names no file."""
    return _SESSION_ID.fullmatch(session_id) is not None


def folder_name(cwd: str) -> str:
    """The name of a cwd's project folder, or how it begins: the CLI cuts it at 200 characters and adds a hash.

    Everything but ASCII letters and digits becomes a hyphen, one for each UTF-16 code unit (measured: it is a
    JavaScript regular expression).
    """
    units = (("-" if ord(char) < 0x10000 else "--") if _NO_ALNUM.match(char) else char for char in cwd)
    return "".join(units)[:_FOLDER_NAME_LENGTH]


def project_folders(config: Path, cwds: Collection[str] | None = None) -> list[Path]:
    """All project folders, symlinked ones resolved and each once; empty when there are none yet.

    ``cwds`` leaves out folders that by their name (their own, or a link's) cannot be those of any of these. Raises
    :class:`~sayagain.errors.HistoryUnreadable` when they cannot be listed: that is not the same as none.
    """
    wanted = None if cwds is None else tuple(folder_name(cwd) for cwd in cwds)
    folders: dict[Path, None] = {}
    try:
        with os.scandir(config / "projects") as entries:
            for entry in entries:
                path = Path(os.path.realpath(entry.path) if entry.is_symlink() else entry.path)
                if wanted is None or any(_is_folder_of(name, wanted) for name in (entry.name, path.name)):
                    folders[path] = None
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise HistoryUnreadable(f"The project folders cannot be listed: {error.strerror}") from error
    return list(folders)


def _is_folder_of(name: str, wanted: tuple[str, ...]) -> bool:
    return name in wanted if len(name) <= _FOLDER_NAME_LENGTH else name[:_FOLDER_NAME_LENGTH] in wanted


def preference(status: os.stat_result) -> tuple[bool, bool, int, int]:
    """Orders files of one session that lie in several folders; the greatest is the session (see :func:`find`)."""
    return (stat.S_ISREG(status.st_mode), status.st_size > 0, status.st_mtime_ns, status.st_size)


def find(session_id: str, config: Path) -> Path | None:
    """The session's transcript over all project folders; ``None`` when nothing is stored under the id.

    When several folders hold one (a project folder was copied or moved by hand), the choice is: a regular file before
    anything else, one with content before an empty one, then the one written last, then the larger one. What is found
    may still be unreadable; that is for the reader to say. Raises :class:`~sayagain.errors.HistoryUnreadable` when
    the session was found nowhere and a folder could not be looked into.
    """
    if not is_session_id(session_id):
        return None
    name = f"{session_id}.jsonl"
    found: list[tuple[tuple[bool, bool, int, int], Path]] = []
    denied: OSError | None = None
    for folder in project_folders(config):
        path = folder / name
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            denied = error
            continue
        found.append((preference(status), path))
    if found:
        return max(found)[1]
    if denied is not None:
        raise HistoryUnreadable(f"A project folder cannot be looked into: {denied.strerror}") from denied
    return None


def subagent_files(transcript: Path, agent_id: str) -> SubagentFiles | None:
    """The files of one subagent of the session, whether they exist or not; ``None`` for an id that names no file.

    Nested subagents lie in the same flat folder (measured).
    """
    if _AGENT_ID.fullmatch(agent_id) is None:
        return None
    folder = transcript.with_suffix("") / "subagents"
    return SubagentFiles(agent_id, folder / f"agent-{agent_id}.jsonl", folder / f"agent-{agent_id}.meta.json")


def list_subagents(transcript: Path) -> list[SubagentFiles]:
    """All subagents of which a file exists, by id: also one whose transcript is missing and whose meta file is not.

    Raises :class:`~sayagain.errors.HistoryUnreadable` when their folder cannot be listed.
    """
    try:
        names = os.listdir(transcript.with_suffix("") / "subagents")  # noqa: PTH208 - names are all that is needed
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise HistoryUnreadable(f"The subagents' folder cannot be listed: {error.strerror}") from error
    found: dict[str, SubagentFiles] = {}
    for name in names:
        if not name.startswith("agent-"):
            continue
        for ending in (".jsonl", ".meta.json"):
            if name.endswith(ending):
                files = subagent_files(transcript, name[len("agent-") : -len(ending)])
                if files is not None:
                    found[files.agent_id] = files
    return [found[agent_id] for agent_id in sorted(found)]
