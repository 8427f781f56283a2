"""Live and replay of every recording agree, entity by entity (design section 3)."""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import pytest

from recorded.recordings import Recording, recordings
from sayagain.runtime.history import Unreadable
from sayagain_claude.translate.prompts import stored_content
from support_folding import Entities, fold, updates_of
from support_recordings import children_announced, children_replayed
from support_schema import fault_in, needs_oracles

RECORDINGS = recordings()

every_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)

KILLED = "the process was killed before it stored this"
UNFORWARDED = "recorded without forwardSubagentText: children's texts are in their files only"

NEVER_STORED = {"hook_blocks", "prompt_withdrawn"}

ALLOWED: dict[str, tuple[str, str]] = {
    # recording: (kind of entity, why it is on one side alone)
    "killed_text": ("agent_message", KILLED),
    "subagent_foreground": ("agent_message", UNFORWARDED),
    "subagent_nested": ("agent_message", UNFORWARDED),
    "subagents_parallel": ("agent_message", UNFORWARDED),
}
"""Differences that are no fault of the translation; each must occur."""


def _comparable(entities: Entities, session_id: str) -> Entities:
    """Without the root's prompts, which live come from the client, and without why a child last stopped.

    A stored child says that it is over and not how, and a replayed state reports no completion (RES-10).
    """
    kept = copy.deepcopy({key: entity for key, entity in entities.items() if key[:2] != (session_id, "user_message")})
    for (_, kind, _), entity in kept.items():
        if kind == "subagent":
            entity["state"] = {"state": entity["state"]["state"]}
    return kept


@every_recording
def test_every_entity_is_the_same(recording: Recording, tmp_path: Path) -> None:
    live = _comparable(fold(recording.live()), recording.session_id)
    replayed = _comparable(fold(recording.replayed(tmp_path)), recording.session_id)
    kind, _ = ALLOWED.get(recording.name, ("", ""))
    alone = [key for key in live.keys() ^ replayed.keys() if key[1] == kind]
    assert bool(alone) is bool(kind)
    for key in alone:
        live.pop(key, None)
        replayed.pop(key, None)
    assert live == replayed


@every_recording
def test_entities_keep_their_order_within_a_session(recording: Recording, tmp_path: Path) -> None:
    live, replayed = fold(recording.live()), fold(recording.replayed(tmp_path))
    # A child's announcement, a plan and a terminal, which its call shows, have no place in the timeline.
    shared = {key for key in live.keys() & replayed.keys() if key[1] not in ("subagent", "plan", "terminal")}
    for session_id in {key[0] for key in shared}:
        assert [k for k in live if k in shared and k[0] == session_id] == [
            k for k in replayed if k in shared and k[0] == session_id
        ]


@every_recording
def test_prompts_come_back_as_they_were_sent(recording: Recording, tmp_path: Path) -> None:
    replayed = fold(recording.replayed(tmp_path))
    for record in recording.records():
        frame = record["frame"]
        if record["direction"] != "in" or frame.get("type") != "user":
            continue
        entity = replayed.get((recording.session_id, "user_message", frame["uuid"]))
        content = frame["message"]["content"]
        if content == "/cost":
            content = "/usage"  # an alias: the CLI stores the command's own name
        if recording.name == "queued_merged" and content != "First.":
            continue  # one message of the two
        if entity is None:
            assert recording.name in NEVER_STORED
        else:
            assert entity["content"] == stored_content(content)


@every_recording
def test_children_are_announced_first_and_end_once(recording: Recording, tmp_path: Path) -> None:
    children_announced(recording.live(), recording.session_id)
    entries = recording.replayed(tmp_path)
    children_replayed(entries, recording.session_id)
    assert not any(isinstance(entry, Unreadable) for entry in entries)


@every_recording
def test_nothing_of_the_runtimes_own_words_is_shown(recording: Recording, tmp_path: Path) -> None:
    items = [*recording.live(), *recording.replayed(tmp_path)]
    shown = [text for _, update in updates_of(items) for text in _texts(update)]
    for words in (
        "<system-reminder>",
        "<command-name>",
        "<local-command",
        "<task-notification>",
        "tools-used-before-summary",
        "[Request interrupted",
        "[Subagent hand-back]",
        "[Tool call interrupted",
        "The user doesn't want to",
        "No response requested.",
        "completed with no output)",
        "Command running in background",
        "Async agent launched",
        "This session is being continued",
        "agentId:",
        "moved to the background",
        "Output is being written to",
        "Monitor started",
        "[exited with code",
        "[killed]",
        "Shell cwd was reset",
    ):
        assert [text for text in shown if words in text] == []


def _texts(value: Any, key: str = "") -> list[str]:
    if isinstance(value, str):
        return [value] if key in ("text", "title", "description") else []
    if isinstance(value, dict):
        if value.keys() == {"data"}:  # what a terminal shows
            return [base64.b64decode(value["data"]).decode()]
        return [text for name, item in value.items() if name != "rawInput" for text in _texts(item, name)]
    return [text for item in value for text in _texts(item, key)] if isinstance(value, list) else []


@every_recording
@needs_oracles
def test_every_update_is_valid(recording: Recording, tmp_path: Path) -> None:
    for _, update in updates_of([*recording.live(), *recording.replayed(tmp_path)]):
        assert fault_in("SessionUpdate", update) is None
