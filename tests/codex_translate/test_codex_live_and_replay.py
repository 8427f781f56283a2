"""Live and replay of every recording agree, entity by entity and field by field (design section 3)."""

from __future__ import annotations

import copy

import pytest

from codex_translate.codex_recordings import Recording, recordings
from sayagain.runtime.history import UserTurn
from sayagain_codex.history import message_ids
from sayagain_codex.translate import approvals
from sayagain_codex.translate.live import LiveTranslator
from sayagain_codex.translate.prompts import stored_content
from support_folding import Entities, fold, updates_of
from support_recordings import children_announced, children_replayed
from support_schema import WireChecker, needs_oracles

RECORDINGS = recordings()

every_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)

DECLINED = "a command that was not allowed is not stored"
CUT = "the text of a message that was cut is not stored"
KILLED = "the process was killed before it stored this"
PLANS = "the steps of a plan are not stored"
LEGACY = "legacy threads store no commands, and number their items anew"

ALLOWED: dict[str, tuple[set[str], str]] = {
    # recording: (kinds of entities, why they are on one side alone)
    "approval_cancelled": ({"terminal", "tool_call"}, DECLINED),
    "approval_declined": ({"terminal", "tool_call"}, DECLINED),
    "approval_interrupted": ({"terminal", "tool_call"}, DECLINED),
    "interrupt_text": ({"agent_message"}, CUT),
    "killed": ({"terminal", "tool_call"}, KILLED),
    "killed_in_text": ({"agent_message"}, KILLED),
    "legacy": ({"agent_message", "agent_thought", "terminal", "tool_call"}, LEGACY),
    "plan": ({"plan"}, PLANS),
    "reverted": ({"agent_message"}, "what was reverted is gone"),
    "steer_text": ({"agent_message"}, CUT),
    "subagent_v1_killed": ({"agent_message"}, KILLED),
    "subagent_v2_interrupted": ({"agent_message"}, CUT),
}
"""Differences that are no fault of the translation; each must occur."""


def _comparable(entities: Entities, session_id: str) -> Entities:
    """Without the root's prompts, which live come from the client, emptied messages, and why a child last stopped.

    A stored child says that it is over and not how, and a replayed state reports no completion (RES-10).
    """
    kept = copy.deepcopy(
        {
            key: entity
            for key, entity in entities.items()
            if key[:2] != (session_id, "user_message") and entity.get("content") != []
        }
    )
    for (_, kind, _), entity in kept.items():
        if kind == "subagent":
            entity["state"] = {"state": entity["state"]["state"]}
    return kept


@every_recording
async def test_every_entity_is_the_same(recording: Recording) -> None:
    live = _comparable(fold(recording.live()), recording.session_id)
    replayed = _comparable(fold(await recording.replayed()), recording.session_id)
    kinds, _ = ALLOWED.get(recording.name, (set[str](), ""))
    alone = [key for key in live.keys() ^ replayed.keys() if key[1] in kinds]
    assert {key[1] for key in alone} == kinds
    for entities in (live, replayed):
        for key in alone:
            entities.pop(key, None)
    assert live == replayed


@every_recording
def test_a_child_is_announced_before_it_is_spoken_of(recording: Recording) -> None:
    children_announced(recording.live(), recording.session_id)


@every_recording
async def test_replay_tells_each_child_and_its_end_once(recording: Recording) -> None:
    children = children_replayed(await recording.replayed(), recording.session_id)
    assert len(children) == len(recording.about["childThreadIds"])


@every_recording
async def test_each_prompt_is_replayed_once_under_its_id(recording: Recording) -> None:
    told = {
        entry.message_ids[0]: entry.update
        for entry in await recording.replayed()
        if isinstance(entry, UserTurn) and entry.session_id == recording.session_id
    }
    submitted = {
        message["params"]["clientUserMessageId"]: stored_content(message["params"]["input"])
        for record in recording.messages()
        if record["direction"] == "in" and "input" in (message := record["message"]).get("params", {})
    }
    for message_id, update in told.items():
        if message_id in submitted:
            assert update == {
                "sessionUpdate": "user_message",
                "messageId": message_id,
                "content": submitted[message_id],
            }
    stored = {
        row["item"]["clientId"]
        for exchange in recording.exchanges()
        for row in exchange.get("result", {}).get("data", [])
        if isinstance(row.get("item"), dict) and row["item"]["type"] == "userMessage" and row["item"]["clientId"]
    }
    assert stored <= told.keys()


@every_recording
async def test_message_ids_are_those_of_the_history(recording: Recording) -> None:
    told = {
        entry.message_ids[0]
        for entry in await recording.replayed()
        if isinstance(entry, UserTurn) and entry.session_id == recording.session_id
    }
    assert await message_ids(recording.client(), recording.session_id) == told


@needs_oracles
@every_recording
async def test_every_update_is_valid(recording: Recording) -> None:
    wire = WireChecker()
    for session_id, update in [*updates_of(recording.live()), *updates_of(await recording.replayed())]:
        params = {"sessionId": session_id, "update": update}
        wire.agent_sent({"jsonrpc": "2.0", "method": "session/update", "params": params})


@needs_oracles
@every_recording
def test_every_question_is_a_valid_request_and_has_an_answer(recording: Recording) -> None:
    translator = LiveTranslator(recording.session_id, recording.cwd())
    number = 0
    for record in recording.messages():
        message = record["message"]
        if record["direction"] != "out" or "method" not in message:
            continue
        if "id" not in message:
            translator.notification(message["method"], message["params"])
            continue
        params = message["params"]
        session_id = translator.session_of(params["threadId"])
        assert session_id is not None
        if message["method"] not in approvals.METHODS:
            continue
        for capabilities in ({"elicitation": {"form": {}, "url": {}}}, {}):
            item = translator.item_of(params)
            asked = approvals.request(
                session_id, message["method"], params, item=item, cwd=recording.cwd(), capabilities=capabilities
            )
            if asked is None:
                assert not capabilities
                continue
            number += 1
            WireChecker().agent_sent({"jsonrpc": "2.0", "id": number, "method": asked[0], "params": asked[1]})
            for option in asked[1].get("options", []):
                outcome = {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
                assert approvals.response(message["method"], params, outcome)
        assert approvals.response(message["method"], params, None)
    assert bool(number) == any(request["method"] in approvals.METHODS for request in recording.requests())
