"""Replays of which something was lost on the way to the client: no marker and no success makes them whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest

from client.places import Scripted
from sayagain.client import Client, Outcome, PeerError, Replay, ReplayTracker, Update, connect
from sayagain.protocol import lines
from sayagain.protocol.jsonrpc import encode_notification

MARKER = {"sessionUpdate": "replay_complete"}


def said(text: object) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message", "messageId": text, "content": []}


def child(session_id: str) -> dict[str, Any]:
    return {"sessionUpdate": "subagent_update", "sessionId": session_id}


def told(update: object, session_id: object = "s") -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": session_id, "update": update}}


def line(update: object, session_id: object = "s") -> bytes:
    return encode_notification("session/update", told(update, session_id)["params"]).removesuffix(b"\n")


class Replaying:
    """An agent that answers each resume with these lines, and then with success."""

    def __init__(self, **lines: Sequence[Mapping[str, Any] | bytes]) -> None:
        self.lines = lines

    def __call__(self, asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
        if "id" not in asked or "method" not in asked:
            return []
        told = self.lines[asked["params"]["sessionId"]] if asked["method"] == "session/resume" else []
        return [*told, {"id": asked["id"], "result": {"protocolVersion": 2, "sessionId": "s"}}]


async def replay_of(*lines: Mapping[str, Any] | bytes) -> Replay:
    with anyio.fail_after(20):
        async with connect(Scripted(Replaying(s=lines)).open) as client:
            _, replay = await client.resume("s", "/", replay=True)
    assert replay is not None
    return replay


ALONE = line(said("b"))

DAMAGED: Mapping[str, Sequence[Mapping[str, Any] | bytes]] = {
    "torn by another line": [ALONE[:40] + b"\nWARNING: slow disk\n" + ALONE[40:]],
    "torn before its kind": [ALONE[:5], ALONE[5:]],
    "behind a line without an end": [b"Loading... " + ALONE],
    "two in one": [ALONE + ALONE],
    "a NUL in it": [ALONE.replace(b"sessionId", b"session\0d", 1)],
    "no UTF-8": [ALONE.replace(b"agent", b"\xff\xfe", 1)],
    "no version": [ALONE.replace(b'"jsonrpc":"2.0",', b"", 1)],
    "another version": [ALONE.replace(b'"2.0"', b'"1.0"', 1)],
    "by position": [b'{"jsonrpc":"2.0","method":"session/update","params":["s",{}]}'],
    "params that are none": [b'{"jsonrpc":"2.0","method":"session/update","params":"b"}'],
    "in a batch": [b"[" + line(said("a")) + b"," + ALONE.replace(b'"2.0"', b"2", 1) + b"]"],
    "as a request": [ALONE.replace(b'"method"', b'"id":"r","method"', 1)],
    "no session": [told(said("b"), None)],
    "no update": [told("b")],
}

STRAY = ["WARNING: slow disk", "", "{}", '{"level":"info","msg":"ready"}', "[]", "17", '"session/update"', "[1"]


class TestWhatCannotBeRead:
    @pytest.mark.parametrize("marked", [True, False])
    @pytest.mark.parametrize("damage", DAMAGED)
    async def test_is_missing(self, damage: str, *, marked: bool) -> None:
        replay = await replay_of(told(said("a")), *DAMAGED[damage], *([told(MARKER)] if marked else []))
        assert (replay.outcome, replay.whole) == (Outcome.TRUNCATED, False)
        assert "what may be an update could not be read" in replay.violations

    async def test_is_missing_if_it_is_too_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines.LineSplitter.__init__, "__defaults__", (5000,))
        monkeypatch.setattr("sayagain.protocol.jsonrpc.Decoder.__init__.__defaults__", (5000,))
        replay = await replay_of(told(said("a")), line(said("b" * 10000)), told(MARKER))
        assert replay.outcome is Outcome.TRUNCATED

    @pytest.mark.parametrize("stray", STRAY)
    async def test_what_others_print_is_no_part_of_it(self, stray: str) -> None:
        replay = await replay_of(told(said("a")), stray.encode(), told(MARKER))
        assert (replay.outcome, replay.violations) == (Outcome.COMPLETE, ())

    async def test_after_the_marker_nothing_is_missing(self) -> None:
        replay = await replay_of(told(said("a")), told(MARKER), *DAMAGED["torn by another line"])
        assert (replay.outcome, replay.history) == (Outcome.COMPLETE, (said("a"),))

    async def test_only_where_it_may_belong(self) -> None:
        """Each session has its own outcome, and a line may say whose it was."""
        replay = await replay_of(
            told(child("one")),
            told(child("two")),
            told("garbage", "one"),
            *[told(MARKER, each) for each in ("one", "two")],
        )
        assert {each.session_id: each.outcome for each in replay.sessions.values()} == {
            "s": Outcome.UNCERTIFIED,
            "one": Outcome.TRUNCATED,
            "two": Outcome.COMPLETE,
        }

    @pytest.mark.parametrize("lost", [b'{"jsonrpc":2}', b"5"])
    async def test_in_its_place_in_a_batch(self, lost: bytes) -> None:
        """It may be of a child that the batch has just announced."""
        batch = b",".join((line(child("c")), lost, line(MARKER, "c")))
        replay = await replay_of(b"[" + batch + b"]", told(MARKER))
        assert {each.session_id: each.outcome for each in replay.sessions.values()} == {
            "s": Outcome.TRUNCATED,
            "c": Outcome.TRUNCATED,
        }

    @pytest.mark.parametrize("kind", [["x"], {}, None, 5, True])
    async def test_a_kind_of_any_type_is_kept(self, kind: object) -> None:
        """It is no reason to lose the update."""
        replay = await replay_of(told({"sessionUpdate": kind}), told(MARKER))
        assert (replay.outcome, replay.history) == (Outcome.COMPLETE, ({"sessionUpdate": kind},))
        replay = await replay_of(told({"sessionUpdate": kind}))
        assert (replay.outcome, replay.history) == (Outcome.UNCERTIFIED, ({"sessionUpdate": kind},))


class TestWhatReachesNoSession:
    async def test_a_child_that_is_announced_too_late(self) -> None:
        """Nobody knew whose its first updates were (SUB-1)."""
        replay = await replay_of(
            told(said("x"), "c"), told(child("c")), told(said("y"), "c"), told(MARKER, "c"), told(MARKER)
        )
        assert (replay.outcome, replay.sessions["c"].outcome) == (Outcome.COMPLETE, Outcome.TRUNCATED)
        assert replay.violations == ("an update of a child that was not announced",)

    def test_what_is_remembered_of_strangers_is_bounded(self) -> None:
        tracker = ReplayTracker("s")
        for number in range(5000):
            tracker.miss(f"x{number}")
        assert len(tracker._missed) == 1000
        tracker.take("s", child("x4000"))
        tracker.take("x4000", MARKER)
        tracker.take("s", MARKER)
        replay = tracker.finish(succeeded=True)
        assert (replay.outcome, replay.sessions["x4000"].outcome) == (Outcome.COMPLETE, Outcome.TRUNCATED)
        assert replay.violations == ("an update of a child that was not announced",)

    @pytest.mark.parametrize("marked", [True, False])
    async def test_a_session_that_is_closed_meanwhile(self, *, marked: bool) -> None:
        """Closed as far as this client knows: the agent refuses, and goes on. It has done nothing wrong."""
        begun, resumes = anyio.Event(), list[int]()

        def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
            match asked["method"]:
                case "session/resume":
                    resumes.append(asked["id"])
                    begun.set()
                    return [told(child("c")), told(said("a")), *([told(MARKER)] if marked else [])]
                case "session/close":
                    return [{"id": asked["id"], "error": {"code": -32603, "message": "no"}}]
                case "_go":
                    return [
                        told(said("b")),
                        *([] if marked else [told(MARKER)]),
                        told(MARKER, "c"),
                        {"id": resumes[0], "result": {}},
                        {"id": asked["id"], "result": {}},
                    ]
                case _ if "id" in asked:
                    return [{"id": asked["id"], "result": {"protocolVersion": 2, "sessionId": "s"}}]
                case _:
                    return []

        got: list[Replay | None] = []

        async def ask(client: Client) -> None:
            got.append((await client.resume("s", "/", replay=True))[1])

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open) as client:
                session = await client.new_session("/")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ask, client)
                    await begun.wait()
                    with pytest.raises(PeerError):
                        await session.close()
                    await client.request("_go", {})
        (replay,) = got
        assert replay is not None
        assert replay.outcome is (Outcome.COMPLETE if marked else Outcome.TRUNCATED)
        assert replay.sessions["c"].outcome is Outcome.TRUNCATED
        assert replay.violations == ()


class TestSessionsThatAnAgentCallsChildren:
    """A child is no session of its own (SUB-9): an agent that says so of one takes nothing away from it."""

    async def test_its_stream_and_replay_stay_its_own(self) -> None:
        agent = Replaying(
            parent=[told(child("s"), "parent"), told(said("x"), "s"), told(MARKER, "s"), told(MARKER, "parent")],
            s=[told(said("a")), told(said("b")), told(MARKER)],
        )
        with anyio.fail_after(20):
            async with connect(Scripted(agent).open) as client:
                parent, first = await client.resume("parent", "/", replay=True)
                parent.pending_events()
                session, second = await client.resume("s", "/", replay=True)
                assert first is not None
                assert second is not None
                assert first.whole
                assert (second.outcome, second.history) == (Outcome.COMPLETE, (said("a"), said("b")))
                assert len([event for event in session.pending_events() if isinstance(event, Update)]) == 3
                _, third = await client.resume("parent", "/", replay=True)
                assert third is not None
                assert (third.outcome, third.sessions["s"].outcome) == (Outcome.COMPLETE, Outcome.TRUNCATED)
                assert third.violations == ("a child that is a session of its own",)

    async def test_two_replays_that_claim_it_are_both_doubted(self) -> None:
        """The marker of one could come before the last update of the other."""
        halted = anyio.Event()
        first: list[int] = []
        parent = [told(child("s"), "parent"), told(said("a"))]
        own = [told(said("a")), told(said("b")), told(MARKER)]

        def answer(asked: dict[str, Any]) -> list[Mapping[str, Any] | bytes | None]:
            if asked["method"] != "session/resume":
                return [{"id": asked["id"], "result": {"protocolVersion": 2}}]
            if asked["params"]["sessionId"] == "parent":
                halted.set()
                first.append(asked["id"])
                return [*parent]
            rest = [told(said("b")), told(MARKER), told(MARKER, "parent"), {"id": first[0], "result": {}}]
            return [*rest, *own, {"id": asked["id"], "result": {}}]

        got: dict[str, Replay | None] = {}

        async def ask(client: Client, session_id: str) -> None:
            got[session_id] = (await client.resume(session_id, "/", replay=True))[1]

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open) as client, anyio.create_task_group() as tasks:
                tasks.start_soon(ask, client, "parent")
                await halted.wait()
                tasks.start_soon(ask, client, "s")
        assert got["parent"] is not None
        assert got["s"] is not None
        assert got["parent"].outcome is Outcome.COMPLETE
        assert got["parent"].sessions["s"].outcome is Outcome.TRUNCATED
        assert got["s"].outcome is Outcome.TRUNCATED
