"""The report as a table on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Final, TextIO

from sayagain.check.lines import describe
from sayagain.check.model import Result, Status, Tier
from sayagain.check.runner import Report
from sayagain.check.trace import Event
from sayagain.legible import clean, excerpt

__all__ = ["Terminal"]

LONGEST: Final = 1000
"""Characters of a reason."""

_MARKS: Final = {Status.PASS: ("pass", "32"), Status.FAIL: ("FAIL", "1;31"), Status.SKIPPED: ("skip", "2")}


class Terminal:
    """Writes to ``stream``; in colours when that is a terminal and ``NO_COLOR`` is not set."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._coloured = self._stream.isatty() and not os.environ.get("NO_COLOR")
        self._width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
        self._title = ""

    def begin(self, command: str, profile: str, count: int) -> None:
        """The title."""
        self._line(self._style("1", f"sayagain check: {count} checks of {clean(command)}, profile {profile}"))

    def tell(self, result: Result) -> None:
        """One check, if the run came to it."""
        if result.not_run:
            return
        check = result.check
        title = "In all that was written" if check.over_all else check.area.value
        if title != self._title:
            self._title = title
            self._line("")
            self._line(self._style("1", title))
        mark, style = _MARKS[result.status]
        if result.status is Status.FAIL and check.tier is Tier.SHOULD:
            mark, style = "warn", "33"
        self._line(f"  {self._style(style, mark)}  {check.tier.value:<6}  {check.id}")
        if result.status is Status.PASS:
            return
        if result.status is Status.FAIL:
            self._wrapped(f"{check.rule} ({check.source.value}, {check.section})", "2")
        self._wrapped(result.reason, style)
        if result.status is Status.FAIL:
            self._lines(result.lines)

    def end(self, report: Report) -> None:
        """The summary."""
        passed, skipped = report.count(Status.PASS), report.count(Status.SKIPPED)
        broken, bent = report.count(Status.FAIL, Tier.MUST), report.count(Status.FAIL, Tier.SHOULD)
        who = excerpt(" ".join(str(report.agent[name]) for name in ("name", "version") if report.agent.get(name)))
        self._line("")
        if report.trouble:
            self._wrapped(f"The run was given up: {report.trouble}", "1;31", "")
            self._lines(report.lines)
        summary = f"{passed} passed, {broken} failed, {bent} warnings, {skipped - report.not_run} skipped"
        if report.not_run:
            summary += f", {report.not_run} not run"
        said = f"{who or 'the agent'}: {summary} in {report.seconds:.0f} s"
        self._line(self._style("1;31" if report.failed else "1;32", said))

    def _wrapped(self, text: str, style: str, indent: str = " " * 16) -> None:
        for line in textwrap.wrap(excerpt(text, LONGEST), self._width - len(indent)):
            self._line(f"{indent}{self._style(style, line)}")

    def _lines(self, events: Iterable[Event]) -> None:
        for event in events:
            self._line(self._cut(f"{'':16}{describe(event)}"))

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._width else text[: self._width - 1] + "…"

    def _style(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._coloured else text

    def _line(self, text: str) -> None:
        # Not every terminal knows every character.
        encoding = self._stream.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), file=self._stream, flush=True)
