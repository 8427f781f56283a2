"""Ids that come again: each item has one of its own, live and in replay (design section 3)."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sayagain.runtime.events import RuntimeEvent, Update
from sayagain_codex.history import history
from sayagain_codex.translate import approvals
from sayagain_codex.translate.item_ids import in_turn, item_id_for
from sayagain_codex.translate.live import LiveTranslator
from support_codex import AllListed
from support_folding import Entities, fold, updates_of
from support_schema import WireChecker, needs_oracles

ROOT = "root"
TURN = "01a23193-3d15-70c2-8bdd-f92607494e88"

STAYS = [
    "call_VNfyGPlQwZqmWRgRRYxBTkcJ",  # OpenAI's; this one has no digit
    "msg_68b2f1c0d9a88193a2f0c4e5b6d7e8f90a1b2c3d4e5f6a7b",
    "rs_0d5405925e308000007a",
    "chatcmpl-tool-2f1b9f2c4b7f4d0e9a3c5d6e7f801234",
    "call_00_kQ3vX9mZp2LwT7bN5cRd8sYf",
    "call_0_8f14e45f-ceea-467f-a8d2-1f0e2d3c4b5a",
    "toolu_01A09q90qw90lq917835lq9",
    "exec-76e3494a-33d4-513b-bb28-78d9257bfca0",
    "subagent-completed-f54ce09e-27a7-5bdd-a0d2-ec89697a36d0",
    "f69569eb-4aa3-5c7c-b2d5-523854513d3a-plan",
    "FBD1DC26-1167-5F8E-9A37-46E6A27A2429",
    "item-12",
]
BEARS = [
    "msg_1",
    "call_0",
    "0",
    "i",
    "item_3",
    "msg_904312",
    "call_7kd02hxa",
    "functions.exec_command:12",
    "functions.requestUserPermissions:0",
    "call_1234567890123456789",
    "call_0000000000000000001",
    "read_file_from_repository",
    "mcp__server__searchrepositories",
    "call_function_2pq1m1zmt4mw_1",
    "f69569eb-4aa3-5c7c-b2d5-523854513d3a_1",
    "call_\N{ARABIC-INDIC DIGIT ONE}bcdefghijklmnopq",
]


@pytest.mark.parametrize("item_id", STAYS)
def test_a_random_id_stays(item_id: str) -> None:
    assert item_id_for(item_id, TURN) == item_id
    assert item_id_for(item_id, "t1") == item_id


@pytest.mark.parametrize("item_id", BEARS)
def test_another_bears_its_turn(item_id: str) -> None:
    assert item_id_for(item_id, TURN) == f"{item_id}.{TURN}"
    assert item_id_for(f"{item_id}.{TURN}", TURN) == f"{item_id}.{TURN}"
    assert item_id_for(item_id, "") == item_id


def test_an_id_of_any_length_is_looked_at_shortly() -> None:
    """A search that goes back would take minutes for these."""
    for item_id in ("a" * 10**6 + "_", "0" * 10**6, "f69569eb-4aa3-5c7c-b2d5-523854513d3a-" * 10**4 + "1"):
        assert item_id_for(item_id, TURN) == f"{item_id}.{TURN}"


def test_prompts_and_what_has_no_id_are_left_alone() -> None:
    for item in ({"type": "userMessage", "id": "u1"}, {"type": "agentMessage"}, {"type": "agentMessage", "id": 7}):
        assert in_turn(item, TURN) is item


# Live and replay.


class Codex(AllListed):
    """Tells and stores items as the real one does: one for each id and turn, the last in the place of the first."""

    def __init__(self, number: Callable[[str, str], str]) -> None:
        self._number = number
        self.translator = LiveTranslator(ROOT, "/w")
        self.events: list[RuntimeEvent] = []
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self._turn = ""

    def say(self, method: str, /, **params: Any) -> list[dict[str, Any]]:
        events = self.translator.notification(method, {"threadId": ROOT, "turnId": self._turn, **params})
        self.events += events
        return [dict(event.update) for event in events if isinstance(event, Update)]

    def turn(self, turn_id: str) -> None:
        self._turn = turn_id
        self.say("turn/started", turn={"id": turn_id})

    def turn_over(self) -> None:
        self.say("turn/completed", turn={"id": self._turn, "status": "completed"})

    def restart(self) -> None:
        self.events += self.translator.close_calls("failed")
        self.translator = LiveTranslator(ROOT, "/w")

    def id(self, prefix: str) -> str:
        return self._number(self._turn, prefix)

    def starts(self, kind: str, item_id: str, /, **item: Any) -> list[dict[str, Any]]:
        return self.say("item/started", item={"type": kind, "id": item_id, **item})

    def ends(self, kind: str, item_id: str, /, turn: str = "", **item: Any) -> list[dict[str, Any]]:
        turn_id = turn or self._turn
        self.rows[turn_id, item_id] = {"type": kind, "id": item_id, **item}
        return self.say("item/completed", turnId=turn_id, item=self.rows[turn_id, item_id])

    def message(self, *deltas: str, kind: str = "agentMessage") -> None:
        item_id = self.id("msg")
        self.starts(kind, item_id, text="")
        for delta in deltas:
            self.say(f"item/{kind}/delta", itemId=item_id, delta=delta)
        self.ends(kind, item_id, text="".join(deltas))

    def thought(self, *parts: str) -> None:
        item_id = self.id("rs")
        self.starts("reasoning", item_id, summary=[], content=[])
        for number, part in enumerate(parts):
            self.say("item/reasoning/summaryTextDelta", itemId=item_id, summaryIndex=number, delta=part)
        self.ends("reasoning", item_id, summary=list(parts), content=[])

    def command(self, line: str, output: str = "", told: str = "", **end: Any) -> str:
        item_id = self.id("call")
        about = {"command": line, "cwd": "/w", "processId": f"p-{line}", "commandActions": []}
        self.starts("commandExecution", item_id, **about, status="inProgress")
        if told:
            self.say("item/commandExecution/outputDelta", itemId=item_id, delta=told)
        if end:
            self.ends("commandExecution", item_id, **about, **end, **({"aggregatedOutput": output} if output else {}))
        return item_id

    def patch(self, name: str) -> None:
        item_id = self.id("call")
        changes = [{"path": f"/w/{name}", "kind": {"type": "add"}, "diff": "x"}]
        self.starts("fileChange", item_id, changes=[], status="inProgress")
        self.say("item/fileChange/patchUpdated", itemId=item_id, changes=changes)
        self.ends("fileChange", item_id, changes=changes, status="completed")

    def tool(self, argument: str, result: str | None) -> None:
        item_id = self.id("call")
        about = {"server": "s", "tool": "t", "arguments": {"x": argument}}
        self.starts("mcpToolCall", item_id, **about, status="inProgress")
        self.say("item/mcpToolCall/progress", itemId=item_id, message="half")
        shown = {"content": [{"type": "text", "text": result}], "structuredContent": {"y": 1}} if result else None
        failed = None if result else {"message": "no"}
        status = "completed" if result else "failed"
        self.ends("mcpToolCall", item_id, **about, result=shown, error=failed, status=status)

    async def request(self, method: str, params: Mapping[str, Any], *, patience: float | None = None) -> Any:
        rows = [{"turnId": turn_id, "item": item} for (turn_id, _), item in self.rows.items()]
        return {"data": rows, "nextCursor": None} if method == "thread/items/list" else {"data": []}

    async def replayed(self) -> Entities:
        batches = history(self, {"id": ROOT, "cwd": "/w"}, ROOT, live=False)
        return fold([entry async for batch in batches for entry in batch])

    def live(self) -> Entities:
        return fold(self.events)


def per_turn() -> Callable[[str, str], str]:
    """Counts from the start with each turn."""
    counts: Counter[tuple[str, str]] = Counter()

    def number(turn_id: str, prefix: str) -> str:
        counts[turn_id, prefix] += 1
        return f"{prefix}_{counts[turn_id, prefix]}"

    return number


def per_request() -> Callable[[str, str], str]:
    """Counts from the start with each request to the model, each of which makes one item of a kind."""
    return lambda _, prefix: f"{prefix}_0"


def a_turn(codex: Codex, turn_id: str) -> None:
    codex.turn(turn_id)
    codex.thought(f"thought of {turn_id}", "and more")
    codex.message("Look ", f"at {turn_id}")
    codex.command("ls", "a\nb\n", "b\n", status="completed", exitCode=0, durationMs=3)
    codex.patch(f"new-{turn_id}")
    codex.tool(turn_id, f"result of {turn_id}")
    codex.tool(turn_id, None)
    codex.thought("another thought")
    codex.command("make", "made\n", "made\n", status="failed", exitCode=2)
    codex.command("true", status="completed")
    codex.message("Done ", f"with {turn_id}")
    codex.turn_over()


def whole(entities: Entities) -> Entities:
    """Without what an entity is not said to have, which a client shows as it shows an empty field."""
    return {key: {name: value for name, value in entity.items() if value} for key, entity in entities.items()}


@pytest.mark.parametrize("counting", [per_turn, per_request])
async def test_each_turns_items_are_entities_of_their_own(counting: Callable[[], Callable[[str, str], str]]) -> None:
    codex = Codex(counting())
    for turn_id in ("t1", "t2"):
        a_turn(codex, turn_id)
    codex.restart()
    a_turn(codex, "t3")
    replayed = await codex.replayed()
    assert whole(codex.live()) == whole(replayed)
    kinds = Counter(kind for _, kind, _ in replayed)
    each = 2 if counting is per_turn else 1
    assert (kinds["agent_message"], kinds["agent_thought"]) == (3 * each, 3 * each)
    assert kinds["tool_call"] == (18 if counting is per_turn else 3)


@needs_oracles
async def test_what_takes_the_place_of_another_is_told_in_valid_updates() -> None:
    codex = Codex(per_request())
    a_turn(codex, "t1")
    wire = WireChecker()
    for session_id, update in updates_of(codex.events):
        params = {"sessionId": session_id, "update": update}
        wire.agent_sent({"jsonrpc": "2.0", "method": "session/update", "params": params})


async def test_nothing_is_left_of_what_is_replaced_while_another_runs() -> None:
    codex = Codex(per_request())
    codex.turn("t1")
    codex.command("make", "made\n", status="failed", exitCode=2)
    codex.command("serve")
    terminal, call = (codex.live()[ROOT, kind, "call_0.t1"] for kind in ("terminal", "tool_call"))
    assert terminal == {"command": "serve", "cwd": "/w", "capabilities": {"cancel": {}}}
    assert call["status"] == "in_progress"
    assert "rawOutput" not in call


async def test_what_is_said_anew_under_its_id_is_said_once() -> None:
    codex = Codex(per_request())
    codex.turn("t1")
    codex.message("First.")
    codex.starts("agentMessage", "msg_0", text="")
    codex.say("item/agentMessage/delta", itemId="msg_0", delta="Sec")
    codex.say("error", error={"message": "Reconnecting"}, willRetry=True)
    codex.message("Second.")
    assert codex.live()[ROOT, "agent_message", "msg_0.t1"]["content"] == [{"type": "text", "text": "Second."}]


# Commands in the background.


def names(codex: Codex) -> list[Any]:
    return [entry["terminalId"] for entry in codex.translator.background(ROOT)]


async def test_commands_of_several_turns_run_on_side_by_side() -> None:
    codex = Codex(per_request())
    for turn_id in ("t1", "t2"):
        codex.turn(turn_id)
        codex.command(f"serve {turn_id}")
        codex.message("It runs.")
        codex.turn_over()
    assert names(codex) == ["call_0.t1", "call_0.t2"]
    assert [terminal.process_id for terminal in codex.translator.terminals()] == ["p-serve t1", "p-serve t2"]
    codex.turn("t3")
    codex.command("ls", "a\n", status="completed", exitCode=0)
    codex.say("item/commandExecution/outputDelta", turnId="t1", itemId="call_0", delta="up\n")
    about = {"cwd": "/w", "processId": "p-serve t1", "commandActions": [], "command": "serve t1"}
    codex.ends("commandExecution", "call_0", "t1", **about, status="completed", exitCode=0, aggregatedOutput="up\n")
    codex.turn_over()
    assert names(codex) == ["call_0.t2"]
    about |= {"processId": "p-serve t2", "command": "serve t2"}
    codex.ends("commandExecution", "call_0", "t2", **about, status="failed", exitCode=-1)
    assert names(codex) == []
    assert whole(codex.live()) == whole(await codex.replayed())


async def test_a_command_that_runs_on_is_not_ended_by_another_of_its_turn() -> None:
    """Codex tells no start of the other (measured), and stores the end of each: the last one stays."""
    codex = Codex(per_request())
    codex.turn("t1")
    codex.command("serve", told="up\n")
    other = {"command": "ls", "cwd": "/w", "processId": "other", "commandActions": []}
    codex.say("item/commandExecution/outputDelta", itemId="call_0", delta="a\nb\nc\n")
    assert codex.ends("commandExecution", "call_0", **other, status="completed", aggregatedOutput="a\nb\nc\n") == []
    codex.patch("new")
    codex.turn_over()
    assert names(codex) == ["call_0.t1"]
    about = {**other, "command": "serve", "processId": "p-serve"}
    ended = codex.ends("commandExecution", "call_0", **about, status="failed", exitCode=1, aggregatedOutput="up\n")
    assert base64.b64decode(ended[0]["output"]["data"]) == b"up\n"
    assert names(codex) == []
    assert whole(codex.live()) == whole(await codex.replayed())


# Questions.


def test_a_question_is_about_the_item_of_its_turn() -> None:
    codex = Codex(per_request())
    codex.turn("t1")
    codex.command("serve")
    codex.turn_over()
    codex.turn("t2")
    codex.starts("commandExecution", "call_0", command="rm -r x", cwd="/w", status="inProgress", processId=None)
    asked = {"threadId": ROOT, "turnId": "t2", "itemId": "call_0", "command": "rm -r x", "cwd": "/w"}
    method = "item/commandExecution/requestApproval"
    wanted = approvals.request(ROOT, method, asked, item=codex.translator.item_of(asked), cwd="/w")
    assert wanted is not None
    assert wanted[1]["subject"]["toolCall"]["toolCallId"] == "call_0.t2"
    (allowed,) = codex.translator.permitted(asked)
    assert isinstance(allowed, Update)
    assert allowed.update["toolCallId"] == "call_0.t2"


def test_a_patch_is_not_asked_for_as_a_command_that_has_its_id() -> None:
    codex = Codex(per_request())
    codex.turn("t1")
    codex.command("serve")
    asked = {"threadId": ROOT, "turnId": "t1", "itemId": "call_0"}
    method = "item/fileChange/requestApproval"
    wanted = approvals.request(ROOT, method, asked, item=codex.translator.item_of(asked), cwd="/w")
    assert wanted is not None
    assert wanted[1]["title"] == "Edit files?"
    assert "subject" not in wanted[1]
