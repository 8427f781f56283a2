"""The real Codex against the stand-in: what the stand-in says of its requests is so."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sayagain.testing.codex_process import CodexPlace, CodexProcess, run_codex
from sayagain.testing.responses_api import ResponsesService, serve_responses
from sayagain.testing.responses_script import (
    CONTEXT_OVERFLOW,
    ApiError,
    Cut,
    Hold,
    Reply,
    Script,
    Step,
    Text,
    ToolUse,
    Usage,
    apply_patch,
    exec_command,
)

pytestmark = [pytest.mark.real, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

COMPACTS = "model_auto_compact_token_limit = 5000\n"


@asynccontextmanager
async def opened(
    tmp_path: Path, *steps: Step, config: str = ""
) -> AsyncGenerator[tuple[CodexProcess, ResponsesService]]:
    place = CodexPlace(tmp_path)
    with anyio.fail_after(60):
        async with serve_responses(Script(steps), keep_items=True) as service:
            place.write(service.url, "gpt-5.5", config)
            async with run_codex(place) as codex:
                free = {"sandbox": "danger-full-access", "approvalPolicy": "never"}
                started = await codex.request("thread/start", cwd=str(place.project), **free)
                codex.thread_id = started["thread"]["id"]
                yield codex, service


async def test_counts_prompts_and_how_often_the_model_sees_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as (codex, service):
        await codex.ask("First.")
        await codex.ask("Second.")
        await codex.ask("Second.")
    assert [asked.kind for asked in service.requests] == ["turn"] * 3
    assert (service.count("First."), service.count("Second.")) == (1, 2)
    assert (service.occurrences("First."), service.occurrences("Second.")) == (1, 2)
    assert {asked.thread_id for asked in service.requests} == {codex.thread_id}


async def test_a_failed_prompt_is_not_counted_with_the_next(tmp_path: Path) -> None:
    failing = Step("Fail.", [[ApiError(400, "invalid_request_error")]])
    async with opened(tmp_path, failing, Step("Overflow.", [[CONTEXT_OVERFLOW]])) as (codex, service):
        for text in ("Fail.", "Overflow.", "Go on."):
            await codex.ask(text)
    assert [asked.newest_text for asked in service.requests if asked.kind == "turn"] == ["Fail.", "Overflow.", "Go on."]
    # After an overflow the next turn begins with a compaction.
    assert [asked.kind for asked in service.requests] == ["turn", "turn", "summary", "turn"]
    errors = [m["params"]["error"]["codexErrorInfo"] for _, m in codex.log if m.get("method") == "error"]
    assert errors == ["other", "contextWindowExceeded"]


async def test_an_interrupt_hangs_up(tmp_path: Path) -> None:
    async with opened(tmp_path, Step("Talk.", [[Text("Well"), Hold("talk"), Text(".")]])) as (codex, service):
        turn_id = await codex.prompt("Talk.")
        await codex.until(lambda m: m.get("method") == "item/agentMessage/delta")
        await codex.request("turn/interrupt", threadId=codex.thread_id, turnId=turn_id)
        await codex.turn_over()
        await service.hung_up()


async def test_a_cut_stream_is_asked_for_again(tmp_path: Path) -> None:
    cut = Step("Talk.", [[Text("Half"), Cut()]], times=1)
    async with opened(tmp_path, cut, Step("Talk.", [[Text("Whole.")]])) as (codex, service):
        await codex.ask("Talk.")
    assert [(asked.kind, asked.round) for asked in service.requests] == [("turn", 0), ("turn", 0)]
    assert service.occurrences("Talk.") == 1


async def test_a_compaction_goes_on_with_the_rounds_of_its_turn(tmp_path: Path) -> None:
    replies = [[exec_command("true")], [exec_command("true"), Usage(9000, 10)], [exec_command("true")], [Text("End.")]]
    async with opened(tmp_path, Step("Run.", replies), config=COMPACTS) as (codex, service):
        await codex.ask("Run.")
        await codex.ask("Then.")
    assert [(asked.kind, asked.round) for asked in service.requests] == [
        ("turn", 0),
        ("continuation", 1),
        ("summary", 0),
        ("continuation", 2),
        ("continuation", 3),
        ("turn", 0),
    ]
    assert (service.count("Run."), service.count("Then."), service.occurrences("Run.")) == (1, 1, 1)


async def test_parallel_tools_are_one_round(tmp_path: Path) -> None:
    patch = apply_patch("*** Begin Patch\n*** Add File: a.txt\n+a\n*** End Patch\n")
    calls: Reply = [exec_command("echo a", id="call_a"), patch, exec_command("echo b", id="call_b"), ToolUse("nothing")]
    async with opened(tmp_path, Step("Run.", [calls, [Text("End.")]])) as (codex, service):
        await codex.ask("Run.")
        assert (tmp_path / "home" / "project" / "a.txt").read_text(encoding="utf-8") == "a\n"
    assert [asked.round for asked in service.requests] == [0, 1]
    assert {result.tool_use_id for result in service.requests[1].tool_results} >= {"call_a", "call_b"}
    assert len(service.requests[1].tool_results) == 4
