"""Agents that are no good: a clear error within a limit, and pending prompts kept."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from client.places import Place, Scripted, until
from sayagain.client import (
    AgentFault,
    AgentFloods,
    AgentGarbled,
    AgentGone,
    AgentSilent,
    GaveUp,
    Outbox,
    OutcomeUnknown,
    PeerError,
    PermissionRequest,
    PromptError,
    PromptKept,
    PromptWithdrawn,
    ResumeFailed,
    Retries,
    connect,
    process,
    with_retries,
)
from sayagain.protocol.v2.config_options import SetSessionConfigOptionRequest
from sayagain.protocol.v2.validate import validate
from sayagain.transports import Transport

QUICK = Retries(attempts=3, first=0.001, longest=0.01)


def program(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


async def fault_of(command: list[str], retries: Retries | None = None, patience: float = 20.0) -> AgentFault:
    way = connect(command, patience=patience)
    if retries is not None:
        way = with_retries(command, retries, patience=patience)
    with anyio.fail_after(60), pytest.raises(AgentFault) as caught:
        async with way:
            pass
    return caught.value


class TestStart:
    async def test_no_such_command(self) -> None:
        fault = await fault_of(["/nowhere/agent"], QUICK)
        assert isinstance(fault, AgentGone)
        assert "/nowhere/agent cannot be started" in str(fault)

    async def test_it_exits_at_once(self) -> None:
        fault = await fault_of(program("import sys; sys.exit('no account \\x1b[2J here')"))
        assert isinstance(fault, AgentGone)
        assert str(fault).endswith("ended with exit code 1: no account here")

    async def test_it_exits_at_once_every_time(self) -> None:
        fault = await fault_of(program("raise SystemExit(3)"), QUICK)
        assert isinstance(fault, GaveUp)
        assert fault.attempts == QUICK.attempts
        assert "exit code 3" in str(fault)

    async def test_it_never_answers(self) -> None:
        fault = await fault_of(program("import sys; sys.stdin.read()"), patience=0.3)
        assert isinstance(fault, AgentSilent)
        assert "initialize was not answered within 0.3 s" in str(fault)

    async def test_it_speaks_something_else(self) -> None:
        fault = await fault_of(
            program("import sys; print('Welcome! \\x1b[1mType help.', flush=True); sys.stdin.read()"), patience=2.0
        )
        assert isinstance(fault, AgentGarbled)
        assert "'Welcome! Type help.'" in str(fault)

    async def test_it_floods_with_something_else(self) -> None:
        fault = await fault_of(program("while True: print('y')"))
        assert isinstance(fault, AgentGarbled)

    async def test_a_line_without_an_end(self) -> None:
        fault = await fault_of(program("import sys\nwhile True: sys.stdout.write('[' * 65536)"), patience=1.0)
        assert isinstance(fault, AgentSilent | AgentGarbled)

    async def test_another_version(self) -> None:
        def answer(asked: dict[str, Any]) -> list[Any]:
            return [{"id": asked["id"], "result": {"protocolVersion": 1}}]

        agent = Scripted(answer)
        with anyio.fail_after(20), pytest.raises(AgentFault, match="does not speak ACP 2"):
            async with with_retries(agent.open, QUICK):
                pass
        assert agent.connections == 1

    async def test_it_says_something_else_and_no_more(self) -> None:
        """It is told before the limit is over, and not tried again."""
        agent = Scripted(lambda asked: [b"Welcome!"])
        with anyio.fail_after(20), pytest.raises(AgentGarbled, match="'Welcome!") as caught:
            async with with_retries(agent.open, QUICK, patience=3.0):
                pass
        assert caught.value.for_good
        assert agent.connections == 1

    @pytest.mark.parametrize("answer", [{"error": "boom"}, {"result": None}, {"result": {}, "error": {"code": 1}}])
    async def test_its_first_answer_is_none(self, answer: dict[str, Any]) -> None:
        agent = Scripted(lambda asked: [{"id": asked["id"], **answer}])
        with anyio.fail_after(20), pytest.raises(AgentGarbled, match=r"does not speak ACP 2: .*(malformed|no object)"):
            async with with_retries(agent.open, QUICK):
                pass
        assert agent.connections == 1

    async def test_it_floods_with_something_else_every_time(self) -> None:
        agent = Scripted(lambda asked: [b"y\n" * 2000])
        with anyio.fail_after(20), pytest.raises(AgentGarbled):
            async with with_retries(agent.open, QUICK):
                pass
        assert agent.connections == 1

    async def test_one_that_has_answered_may_do_better(self) -> None:
        def answer(asked: dict[str, Any]) -> list[Any]:
            if asked["method"] == "initialize":
                return [{"id": asked["id"], "result": {"protocolVersion": 2}}]
            return [b"y\n" * 2000]

        agent = Scripted(answer)
        with anyio.fail_after(20), pytest.raises(GaveUp):
            async with with_retries(agent.open, QUICK) as client:
                await client.list_sessions()
        assert agent.connections == QUICK.attempts


class TestEnd:
    """Nobody waits long for an agent that is known to be no good."""

    @pytest.fixture(autouse=True)
    def for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a good agent gets to end by itself is more than any test has time for."""
        monkeypatch.setattr(process, "CLOSING", 90.0)

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("while True: print('y')", AgentGarbled),
            ("import os, time; os.close(1); time.sleep(3600)", AgentGone),
            ("import time; time.sleep(3600)", AgentSilent),
            ("import time; print(VERSION, flush=True); time.sleep(3600)", AgentFault),
            (
                "import time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(VERSION, flush=True)\n"
                "time.sleep(3600)",
                AgentFault,
            ),
        ],
    )
    async def test_it_does_not_end(self, code: str, kind: type[AgentFault]) -> None:
        answer = '{"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 3}}'
        fault = await fault_of(program(code.replace("VERSION", repr(answer))), patience=2.0)
        assert type(fault) is kind

    async def test_one_that_waits_to_write_sees_the_end_of_its_input(self, tmp_path: Path) -> None:
        """A good agent ends in order, however much it has to tell."""
        ended = tmp_path / "ended"
        code = f"""
            import pathlib, sys
            print('{{"jsonrpc": "2.0", "id": 1, "result": {{"protocolVersion": 2}}}}', flush=True)
            # More than a pipe and what reads it would hold.
            sys.stdout.write('{{"jsonrpc": "2.0", "method": "_x", "params": {{}}}}\\n' * 400_000)
            sys.stdin.read()
            pathlib.Path({str(ended)!r}).touch()
        """
        with anyio.fail_after(60):
            async with connect(program(code)):
                pass
        assert ended.exists()


class TestLater:
    async def test_stray_output_is_forgiven(self) -> None:
        def answer(asked: dict[str, Any]) -> list[Any]:
            result = {"protocolVersion": 2} if asked["method"] == "initialize" else {"sessions": [{"sessionId": "s"}]}
            return [b"DeprecationWarning: this and that", b"", {"id": asked["id"], "result": result}]

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open) as client:
                assert await client.list_sessions() == [{"sessionId": "s"}]

    async def test_a_prompt_is_answered_with_garbage(self, outbox_path: Path) -> None:
        def answer(asked: dict[str, Any]) -> list[Any]:
            match asked["method"]:
                case "initialize":
                    return [{"id": asked["id"], "result": {"protocolVersion": 2}}]
                case "session/new":
                    return [{"id": asked["id"], "result": {"sessionId": "s"}}]
                case "session/prompt":
                    return [b'{"jsonrpc":"2.0","id":' + str(asked["id"]).encode() + b',"result":{"messa']
                case _:
                    return [{"id": asked["id"], "error": {"code": -32601, "message": "unknown"}}]

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open, outbox=outbox_path, patience=0.1) as client:
                session = await client.new_session("/")
                with pytest.raises(PromptKept, match="no JSON-RPC"):
                    await session.prompt("x")
            async with Outbox(outbox_path) as outbox:
                assert len(await outbox.prompts()) == 1

    async def test_a_prompt_is_never_answered_by_an_agent_that_hangs(self, outbox_path: Path) -> None:
        def answer(asked: dict[str, Any]) -> list[Any]:
            results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}
            result = results.get(asked["method"])
            return [] if result is None else [{"id": asked["id"], "result": result}]

        agent = Scripted(answer)
        with anyio.fail_after(20):
            async with connect(agent.open, outbox=outbox_path, patience=0.1) as client:
                session = await client.new_session("/")
                with pytest.raises(PromptKept, match="ping was not answered"):
                    await session.prompt("x")
            async with Outbox(outbox_path) as outbox:
                assert len(await outbox.prompts()) == 1

    @pytest.mark.parametrize(
        "garbage",
        [
            {"error": "boom"},
            {"error": {}},
            {"error": {"message": "no code", "data": {"reason": "prompt_refused"}}},
            {"error": {"code": -32602}},
            {"error": {"code": -32602.0, "message": "m"}},
            {"error": {"code": "-32602", "message": "m"}},
            {"error": {"code": True, "message": "m"}},
            {"error": {"code": -32602, "message": "m"}, "result": {"messageId": "m"}},
            {"error": {"code": 1 << 99, "message": "m"}},
            {"error": None},
            {"result": None},
        ],
    )
    async def test_garbage_is_no_refusal(self, outbox_path: Path, garbage: dict[str, Any]) -> None:
        results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}

        def answer(asked: dict[str, Any]) -> list[Any]:
            result = results.get(asked["method"])
            return [{"id": asked["id"], **(garbage if result is None else {"result": result})}]

        agent = Scripted(answer)
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK, outbox=outbox_path) as client:
                session = await client.new_session("/")
                with pytest.raises(PromptKept):
                    await session.prompt("x")
            async with Outbox(outbox_path) as outbox:
                (row,) = await outbox.prompts()
                assert row.reason
        keys = [asked["params"]["idempotencyKey"] for asked in agent.asked if asked["method"] == "session/prompt"]
        assert keys == [row.key] * QUICK.attempts

    @pytest.mark.parametrize("garbage", [{"error": "boom"}, {"result": "boom"}])
    async def test_nobody_knows_what_garbage_was_to_say(self, garbage: dict[str, Any]) -> None:
        """A prompt that is taken back while garbage is on its way may have been inserted."""
        results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}
        prompt: dict[str, Any] = {}

        def answer(asked: dict[str, Any]) -> list[Any]:
            match asked["method"]:
                case "session/prompt":
                    prompt.update(asked)
                    return []
                case "$/cancel_request":
                    return [{"id": prompt["id"], **garbage}]
                case method:
                    return [{"id": asked["id"], "result": results[method]}]

        agent = Scripted(answer)
        with anyio.fail_after(20):
            async with connect(agent.open) as client:
                session = await client.new_session("/")
                submitted = await session.submit("x")
                while submitted.call is None:
                    await anyio.lowlevel.checkpoint()
                await session.withdraw(submitted)
                with pytest.raises(PromptWithdrawn) as caught:
                    await submitted.inserted()
        assert caught.value.uncertain

    async def test_a_held_prompt_may_wait_for_long(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open, patience=0.5) as client:
                session = await client.new_session("/")
                fake = place.fake(session)
                fake.manual = True
                prompt = await session.submit("x")
                await fake.until(lambda: len(fake.submitted) == 1)
                with anyio.move_on_after(1.2):
                    await prompt.inserted()
                fake.store(fake.submitted[0])
                assert await prompt.inserted() == fake.submitted[0]

    async def test_a_flood_of_updates_that_nobody_reads(self) -> None:
        update = {
            "sessionUpdate": "agent_message_chunk",
            "messageId": "m",
            "content": {"type": "text", "text": "x" * 999},
        }
        flood = [{"method": "session/update", "params": {"sessionId": "s", "update": update}}] * 3000

        def answer(asked: dict[str, Any]) -> list[Any]:
            results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}
            result = results.get(asked["method"])
            return flood if result is None else [{"id": asked["id"], "result": result}]

        with anyio.fail_after(30):
            async with with_retries(Scripted(answer).open, QUICK, max_unread=1 << 20) as client:
                session = await client.new_session("/")
                with pytest.raises(PromptKept, match="does not keep up"):
                    await session.prompt("x")
                with pytest.raises(AgentFloods):
                    await until(session, "nothing")

    async def test_what_is_no_session_is_not_listed(self) -> None:
        def answer(asked: dict[str, Any]) -> list[Any]:
            sessions = {"sessions": [None, "s", [], {"sessionId": "s"}]}
            return [{"id": asked["id"], "result": {"protocolVersion": 2, **sessions}}]

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open) as client:
                assert await client.list_sessions() == [{"sessionId": "s"}]

    async def test_lists_that_turn_in_circles_end(self) -> None:
        def answer(asked: dict[str, Any]) -> list[Any]:
            result = {"protocolVersion": 2} if asked["method"] == "initialize" else {"sessions": [], "nextCursor": ""}
            return [{"id": asked["id"], "result": result}]

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open) as client:
                assert await client.list_sessions() == []


class TestRetryTable:
    def dying(self, method: str, times: int) -> Scripted:
        """Dies of the first requests of a method."""
        deaths = 0

        def answer(asked: dict[str, Any]) -> list[Any]:
            nonlocal deaths
            if asked["method"] == method and deaths < times:
                deaths += 1
                return [None]
            results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}
            return [{"id": asked["id"], "result": results.get(asked["method"], {})}]

        return Scripted(answer)

    async def test_what_is_safe_is_sent_again(self) -> None:
        agent = self.dying("session/delete", 2)
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK) as client:
                await client.delete_session("s")
        assert [m["method"] for m in agent.asked].count("session/delete") == 3

    @pytest.mark.parametrize("method", ["session/new", "session/fork", "auth/login", "_unknown/method"])
    async def test_what_may_duplicate_is_not(self, method: str) -> None:
        agent = self.dying(method, 1)
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK) as client:
                with pytest.raises(OutcomeUnknown, match="is not sent again"):
                    await client.request(method, {})
                # The client is reached again, and the application may decide otherwise.
                await client.request(method, {})
        assert [m["method"] for m in agent.asked].count(method) == 2

    async def test_without_retries_nothing_is(self) -> None:
        agent = self.dying("session/delete", 1)
        with anyio.fail_after(20):
            async with connect(agent.open) as client:
                with pytest.raises(AgentGone):
                    await client.delete_session("s")
                with pytest.raises(AgentGone):
                    await client.list_sessions()

    async def test_an_agent_that_dies_of_each_attempt_is_given_up(self) -> None:
        agent = self.dying("session/delete", 100)
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK) as client:
                with pytest.raises(GaveUp):
                    await client.delete_session("s")
        assert agent.connections == QUICK.attempts


class TestTroubleThatPasses:
    """An error that may pass is no reason to give up what is safe to ask again."""

    def troubled(self, method: str, *errors: int, reason: str = "") -> Scripted:
        """Answers the first requests of a method with these codes."""
        left = list(errors)

        def answer(asked: dict[str, Any]) -> list[Any]:
            if asked["method"] == method and left:
                error: dict[str, Any] = {"code": left.pop(0), "message": "trouble"}
                return [{"id": asked["id"], "error": error | ({"data": {"reason": reason}} if reason else {})}]
            results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}
            return [{"id": asked["id"], "result": results.get(asked["method"], {})}]

        return Scripted(answer)

    def count(self, agent: Scripted, method: str) -> int:
        return [asked["method"] for asked in agent.asked].count(method)

    @pytest.mark.parametrize("reason", ["", "session_in_use", "runtime_died", "runtime_timeout"])
    async def test_the_first_resume_is_asked_again(self, reason: str) -> None:
        agent = self.troubled("session/resume", -32603, -32603, reason=reason)
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK) as client:
                session, replay = await client.resume("s", "/")
        assert (session.session_id, replay) == ("s", None)
        assert (self.count(agent, "session/resume"), agent.connections) == (3, 1)

    async def test_within_the_limit(self) -> None:
        agent = self.troubled("session/resume", *[-32603] * 99)
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK) as client:
                with pytest.raises(ResumeFailed) as caught:
                    await client.resume("s", "/")
        assert caught.value.code == -32603
        assert self.count(agent, "session/resume") == QUICK.attempts

    @pytest.mark.parametrize(
        ("code", "reason"), [(-32602, ""), (-32601, ""), (-32000, ""), (-32800, ""), (-32603, "runtime_missing")]
    )
    async def test_what_would_fail_again_is_not(self, code: int, reason: str) -> None:
        agent = self.troubled("session/resume", code, reason=reason)
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK) as client:
                with pytest.raises(ResumeFailed):
                    await client.resume("s", "/")
        assert self.count(agent, "session/resume") == 1

    async def test_without_retries_nothing_is(self) -> None:
        agent = self.troubled("session/resume", -32603)
        with anyio.fail_after(20):
            async with connect(agent.open) as client:
                with pytest.raises(ResumeFailed):
                    await client.resume("s", "/")
        assert self.count(agent, "session/resume") == 1

    async def test_initialize_is_asked_on_a_new_connection(self) -> None:
        agent = self.troubled("initialize", -32603, -32603)
        with anyio.fail_after(20):
            async with with_retries(agent.open, QUICK) as client:
                await client.new_session("/")
        assert (self.count(agent, "initialize"), agent.connections) == (3, 3)

    async def test_initialize_has_the_limit_too(self) -> None:
        agent = self.troubled("initialize", *[-32603] * 99)
        with anyio.fail_after(20), pytest.raises(GaveUp, match="refuses to start: trouble"):
            async with with_retries(agent.open, QUICK):
                pass
        assert agent.connections == QUICK.attempts

    @pytest.mark.parametrize("code", [-32022, -32602, -32601])
    async def test_another_protocol_stays_another(self, code: int) -> None:
        agent = self.troubled("initialize", code)
        with anyio.fail_after(20), pytest.raises(AgentFault, match="does not speak ACP 2"):
            async with with_retries(agent.open, QUICK):
                pass
        assert agent.connections == 1


class TestWords:
    """What an agent says in an error is shown on terminals, and kept in the outbox."""

    RAW = "no\x1b[2J \x1b]0;title\x07quota\n\u202eleft \ud800" + " of it" * 999
    CLEAN = "no quota \N{REPLACEMENT CHARACTER}left \N{REPLACEMENT CHARACTER} of it of it"

    def refusing(self, method: str, code: int) -> Scripted:
        results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}

        def answer(asked: dict[str, Any]) -> list[Any]:
            if asked["method"] == method:
                return [{"id": asked["id"], "error": {"code": code, "message": self.RAW}}]
            return [{"id": asked["id"], "result": results.get(asked["method"], {})}]

        return Scripted(answer)

    @pytest.mark.parametrize(("code", "state"), [(-32000, "pending"), (-32602, "failed")])
    async def test_of_a_prompt(self, outbox_path: Path, code: int, state: str) -> None:
        with anyio.fail_after(20):
            async with Outbox(outbox_path) as outbox:
                async with connect(self.refusing("session/prompt", code).open, outbox=outbox) as client:
                    session = await client.new_session("/")
                    with pytest.raises(PromptError) as caught:
                        await session.prompt("x")
                (row,) = await outbox.prompts(states=("pending", "failed"))
        assert caught.value.said + ": " + caught.value.reason == str(caught.value)
        assert caught.value.reason.startswith(self.CLEAN)
        assert len(caught.value.reason) == 1000
        assert (row.state, row.code, row.reason) == (state, code, caught.value.reason)

    async def test_of_a_request(self) -> None:
        with anyio.fail_after(20):
            async with connect(self.refusing("session/new", -32602).open) as client:
                with pytest.raises(PeerError) as caught:
                    await client.new_session("/")
        assert str(caught.value).startswith(self.CLEAN)
        assert str(caught.value).endswith("… (-32602)")
        assert caught.value.message == self.RAW

    @pytest.mark.parametrize("code", [-32602, -32603])
    async def test_of_a_start(self, code: int) -> None:
        with anyio.fail_after(20), pytest.raises(AgentFault) as caught:
            async with connect(self.refusing("initialize", code).open):
                pass
        assert self.CLEAN in str(caught.value)


class TestRequestsOfTheAgent:
    async def test_permissions(self) -> None:
        place = Place()
        asked: list[PermissionRequest] = []

        async def allow(request: PermissionRequest) -> str:
            asked.append(request)
            return "allow"

        with anyio.fail_after(20):
            async with connect(place.open, on_permission=allow) as client:
                session = await client.new_session("/")
                fake = place.fake(session)
                fake.ask("a1")
                await fake.until(lambda: "a1" in fake.answers)
        assert fake.answers["a1"] == {"outcome": {"outcome": "selected", "optionId": "allow"}}
        assert (asked[0].title, len(asked[0].options)) == ("Allow a1?", 2)

    async def test_other_notifications_are_heard(self) -> None:
        def answer(asked: dict[str, Any]) -> list[Any]:
            results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}
            if asked["method"] in results:
                return [{"id": asked["id"], "result": results[asked["method"]]}]
            return [
                {"method": "elicitation/complete", "params": {"elicitationId": "1"}},
                {"method": "_unknown", "params": {}},
                {"method": "elicitation/complete", "params": {"elicitationId": "2"}},
                {"id": asked["id"], "result": {}},
            ]

        heard: list[Mapping[str, Any]] = []
        both = anyio.Event()

        async def completed(params: Mapping[str, Any]) -> None:
            heard.append(params)
            if len(heard) == 2:
                both.set()
            else:
                raise ValueError("a mistake of the application's")

        with anyio.fail_after(20):
            async with connect(Scripted(answer).open, listeners={"elicitation/complete": completed}) as client:
                await client.request("_x", {})
                await both.wait()
        assert sorted(params["elicitationId"] for params in heard) == ["1", "2"]

    async def test_nobody_to_ask_is_no_approval(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session = await client.new_session("/")
                fake = place.fake(session)
                fake.ask("a1")
                await fake.until(lambda: "a1" in fake.answers)
        assert fake.answers["a1"] == {"outcome": {"outcome": "cancelled"}}

    async def test_an_error_of_the_agent_has_its_code(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                with pytest.raises(PeerError) as caught:
                    await client.new_session("relative")
        assert caught.value.code == -32602

    async def test_an_error_of_the_application_is_not_wrapped(self) -> None:
        place = Place()
        with anyio.fail_after(20), pytest.raises(ZeroDivisionError):
            async with connect(place.open):
                raise ZeroDivisionError


class TestOptions:
    async def test_an_option_is_set(self) -> None:
        place = Place()
        with anyio.fail_after(20):
            async with connect(place.open) as client:
                session = await client.new_session("/")
                (pace,) = await session.set_config_option("pace", "fast")
        assert (pace["configId"], pace["currentValue"]) == ("pace", "fast")

    @pytest.mark.parametrize(("value", "kind"), [("fast", "id"), (True, "boolean")])
    async def test_its_kind_goes_with_the_value(self, value: str | bool, kind: str) -> None:
        results = {"initialize": {"protocolVersion": 2}, "session/new": {"sessionId": "s"}}
        agent = Scripted(lambda asked: [{"id": asked["id"], "result": results.get(asked["method"], {})}])
        with anyio.fail_after(20):
            async with connect(agent.open) as client:
                assert await (await client.new_session("/")).set_config_option("o", value) == ()
        expected = {"sessionId": "s", "configId": "o", "type": kind, "value": value}
        assert agent.asked[-1]["params"] == expected
        assert validate(SetSessionConfigOptionRequest, expected)


async def test_a_session_without_an_id_is_none() -> None:
    results = {"initialize": {"protocolVersion": 2}}
    agent = Scripted(lambda asked: [{"id": asked["id"], "result": results.get(asked["method"], {})}])
    with anyio.fail_after(20):
        async with connect(agent.open) as client:
            with pytest.raises(AgentGarbled, match="without an id"):
                await client.new_session("/")


async def test_an_agent_that_cannot_be_reached_yet_is_tried_again() -> None:
    place = Place()
    refused = 0

    @asynccontextmanager
    async def open_later() -> AsyncIterator[Transport]:
        nonlocal refused
        if refused < 2:
            refused += 1
            raise ConnectionRefusedError(111, "Connection refused")
        async with place.open() as transport:
            yield transport

    with anyio.fail_after(20):
        async with with_retries(open_later, QUICK) as client:
            await client.new_session("/")
        refused = 0
        with pytest.raises(AgentGone, match="Connection refused"):
            async with connect(open_later):
                pass
