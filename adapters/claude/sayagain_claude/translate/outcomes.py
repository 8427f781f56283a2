"""Results of tools whose text is written for the model: what of them a user can read, from their structured form.

Each takes the call's input and its structured result, and gives ``None`` where that lacks what it needs; the text is
shown then. Shapes measured on claude 2.1.332 unless marked **code**.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from sayagain_claude.translate.blocks import Block, Json, as_list, as_mapping, as_text, fenced, text_content

__all__ = ["OUTCOMES", "findings", "found_lines"]

_MATCH: Final = re.compile(r"(?:(.+?):)?(\d+):")


def _lines(lines: Iterator[str]) -> list[Block]:
    text = "\n".join(line for line in lines if line)
    return [text_content(text)] if text else []


def _scheduled(input_: Json, result: Json) -> list[Block] | None:
    when = as_text(result.get("humanSchedule"))
    return _lines(iter((when, as_text(input_.get("prompt"))))) if when else None


def _schedules(_input: Json, result: Json) -> list[Block] | None:
    if not isinstance(result.get("jobs"), list):
        return None
    jobs = map(as_mapping, as_list(result["jobs"]))
    return _lines(f"- {as_text(job.get('humanSchedule'))}: {as_text(job.get('prompt'))}" for job in jobs)


def _wakeup(input_: Json, result: Json) -> list[Block] | None:
    seconds = result.get("clampedDelaySeconds")
    if result.get("stopped") is True or type(seconds) is not int:
        return []
    return _lines(iter((f"In {seconds} seconds", as_text(input_.get("prompt")))))


def _agents(_input: Json, result: Json) -> list[Block] | None:
    listing = as_text(result.get("listing"))
    # The first paragraph is how others call this session.
    parts = [part for part in listing.split("\n\n") if not part.startswith("This session is ")]
    return _lines(iter(("\n\n".join(parts),))) if listing else None


def _sent(input_: Json, result: Json) -> list[Block] | None:
    message = as_text(input_.get("message"))
    return _lines(iter((message, as_text(result.get("display"))))) if result else None


def _worktree(_input: Json, result: Json) -> list[Block] | None:
    path, branch = as_text(result.get("worktreePath")), as_text(result.get("worktreeBranch"))
    return [text_content(f"{path} ({branch})" if branch else path)] if path else None


def _tools(_input: Json, result: Json) -> list[Block] | None:
    return _lines(map(as_text, as_list(result.get("matches")))) if "matches" in result else None


def _web_search(_input: Json, result: Json) -> list[Block] | None:
    """``results``: texts, and lists of pages (**code**)."""
    if not isinstance(result.get("results"), list):
        return None
    lines: list[str] = []
    for item in as_list(result["results"]):
        lines.append(as_text(item).strip())
        for page in map(as_mapping, as_list(as_mapping(item).get("content"))):
            title, url = as_text(page.get("title")), as_text(page.get("url"))
            lines.append(f"- [{title or url}]({url})" if url else "")
    return _lines(iter(lines))


def _task_output(_input: Json, result: Json) -> list[Block] | None:
    task = as_mapping(result.get("task"))
    output = as_text(task.get("output"))
    return ([fenced(output, "console")] if output.strip() else []) if task else None


def _nothing(_input: Json, result: Json) -> list[Block] | None:
    return [] if result else None


OUTCOMES: Final[dict[str, Callable[[Json, Json], list[Block] | None]]] = {
    "CronCreate": _scheduled,
    "CronDelete": _nothing,
    "CronList": _schedules,
    "EnterWorktree": _worktree,
    "ExitWorktree": _nothing,
    "ListAgents": _agents,
    "ReportFindings": lambda input_, _result: findings(input_) or None,
    "ScheduleWakeup": _wakeup,
    "SendMessage": _sent,
    "TaskOutput": _task_output,
    "TaskStop": _nothing,
    "ToolSearch": _tools,
    "WebSearch": _web_search,
}


def findings(input_: Json) -> list[Block]:
    """The findings of a review as a list."""
    lines: list[str] = []
    for finding in map(as_mapping, as_list(input_.get("findings"))):
        file, line = as_text(finding.get("file")), finding.get("line")
        place = f" ({file}:{line})" if file and type(line) is int else f" ({file})" if file else ""
        summary, scenario = as_text(finding.get("summary")), as_text(finding.get("failure_scenario"))
        lines.append(f"- **{summary}**{place}" + (f": {scenario}" if scenario else ""))
    return _lines(iter(lines))


def found_lines(input_: Json, result: Json) -> list[tuple[str, int | None]]:
    """The places that a search found: (path, line). A search in one file names it in its input alone."""
    names = [as_text(name) for name in as_list(result.get("filenames"))]
    if names or result.get("mode") not in ("content", "count"):
        return [(name, None) for name in names if name]
    places: dict[tuple[str, int | None], None] = {}
    for line in as_text(result.get("content")).split("\n"):
        if result.get("mode") == "count":
            places[line.rpartition(":")[0], None] = None
        elif match := _MATCH.match(line):
            number = int(match[2])
            places[match[1] or as_text(input_.get("path")), number if 1 <= number < 2**32 else None] = None
    return [place for place in places if place[0]]
