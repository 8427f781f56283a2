"""Finding a session's files, wherever they lie, and nothing outside of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sayagain.errors import HistoryUnreadable
from sayagain.testing.transcripts import transcript_path, write_transcript
from sayagain_claude.transcripts.paths import config_dir, find, folder_name, list_subagents, subagent_files

SESSION = "11111111-2222-4333-8444-555555555555"


def write(config: Path, cwd: str, turns: int = 1, mtime: int | None = None) -> Path:
    path = write_transcript(transcript_path(config, cwd, SESSION), turns=turns, session_id=SESSION, cwd=cwd)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return path


def test_config_dir() -> None:
    assert config_dir({"CLAUDE_CONFIG_DIR": "/c", "HOME": "/h"}) == Path("/c")
    assert config_dir({"CLAUDE_CONFIG_DIR": "", "HOME": "/h"}) == Path("/h/.claude")
    assert config_dir({}) == Path.home() / ".claude"


def test_a_session_is_found_in_any_project_folder(tmp_path: Path) -> None:
    assert find(SESSION, tmp_path) is None
    (tmp_path / "projects" / "-other").mkdir(parents=True)
    (tmp_path / "projects" / "a file").write_text("")
    assert find(SESSION, tmp_path) is None
    path = write(tmp_path, "/project")
    assert find(SESSION, tmp_path) == path


@pytest.mark.parametrize(
    "session_id",
    [
        "",
        "..",
        "../projects/-project/x",
        f"../-project/{SESSION}",
        f"{SESSION}\0",
        f"{SESSION}\n",
        f"{{{SESSION}}}",
        SESSION.replace("-", ""),
        "x" * 10_000,
        "*",
        "١" * 8 + SESSION[8:],
    ],
)
def test_what_is_no_session_id_finds_nothing(tmp_path: Path, session_id: str) -> None:
    write(tmp_path, "/project")
    assert find(session_id, tmp_path) is None


def test_of_several_the_one_written_last(tmp_path: Path) -> None:
    old, new = write(tmp_path, "/a", turns=9, mtime=1000), write(tmp_path, "/b", mtime=2000)
    assert find(SESSION, tmp_path) == new
    os.utime(old, (3000, 3000))
    assert find(SESSION, tmp_path) == old
    new.write_bytes(b"")  # newest, and empty
    assert find(SESSION, tmp_path) == old


def test_a_directory_in_its_place_is_found_when_there_is_nothing_else(tmp_path: Path) -> None:
    # Else it would be answered as a session without history.
    blocked = transcript_path(tmp_path, "/z", SESSION)
    blocked.mkdir(parents=True)
    assert find(SESSION, tmp_path) == blocked
    path = write(tmp_path, "/a")
    assert find(SESSION, tmp_path) == path


def test_a_symlinked_project_folder_is_resolved(tmp_path: Path) -> None:
    # anthropics/claude-code#66241
    real = write(tmp_path / "elsewhere", "/project")
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects" / "-link").symlink_to(real.parent)
    (tmp_path / "projects" / "-broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "projects" / "-loop").symlink_to(tmp_path / "projects" / "-loop")
    assert find(SESSION, tmp_path) == real


def test_a_folder_that_cannot_be_looked_into_is_not_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "/a")
    (tmp_path / "projects" / "-b").mkdir()
    stat = Path.stat

    def denied(self: Path) -> os.stat_result:
        if self.parent.name == "-b":
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(self)

    monkeypatch.setattr(Path, "stat", denied)
    assert find(SESSION, tmp_path) == path
    with pytest.raises(HistoryUnreadable, match="Permission denied"):
        find("99999999-2222-4333-8444-555555555555", tmp_path)


def test_projects_that_cannot_be_listed_are_not_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_path: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(HistoryUnreadable, match="Permission denied"):
        find(SESSION, tmp_path)


def test_subagents(tmp_path: Path) -> None:
    transcript = write(tmp_path, "/a")
    assert list_subagents(transcript) == []
    folder = transcript.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    for name in (
        "agent-b.jsonl",
        "agent-b.meta.json",
        "agent-a.meta.json",
        "agent-c.jsonl",
        "notes.txt",
        "agent-.jsonl",
    ):
        (folder / name).write_text("{}")
    found = list_subagents(transcript)
    assert [files.agent_id for files in found] == ["a", "b", "c"]
    assert found[1] == subagent_files(transcript, "b")
    assert (found[1].transcript, found[1].meta) == (folder / "agent-b.jsonl", folder / "agent-b.meta.json")


@pytest.mark.parametrize("agent_id", ["", "../x", "a/b", "a\0", "a\n", "x" * 1000])
def test_an_agent_id_never_leads_elsewhere(tmp_path: Path, agent_id: str) -> None:
    assert subagent_files(tmp_path / "s.jsonl", agent_id) is None


def test_folder_names() -> None:
    assert folder_name("/home/me/my_project.x") == "-home-me-my-project-x"
    assert folder_name("/ü\U0001f600") == "----"
    assert len(folder_name("/" + "x" * 500)) == 200
