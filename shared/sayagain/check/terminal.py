"""The report as a table on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import Final, TextIO

from sayagain.check.lines import describe
from sayagain.check.model import Result, Status, Tier
from sayagain.check.runner import Report

__all__ = ["Terminal"]

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
        self._line(self._style("1", f"sayagain check: {count} checks of {command}, profile {profile}"))

    def tell(self, result: Result) -> None:
        """One check."""
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
            for event in result.lines:
                self._line(self._cut(f"{'':16}{describe(event)}"))

    def end(self, report: Report) -> None:
        """The summary."""
        passed, skipped = report.count(Status.PASS), report.count(Status.SKIPPED)
        broken, bent = report.count(Status.FAIL, Tier.MUST), report.count(Status.FAIL, Tier.SHOULD)
        who = " ".join(str(report.agent[name]) for name in ("name", "version") if report.agent.get(name))
        self._line("")
        if report.trouble:
            self._wrapped(report.trouble, "1;31")
        summary = f"{passed} passed, {broken} failed, {bent} warnings, {skipped} skipped"
        said = f"{who or 'the agent'}: {summary} in {report.seconds:.0f} s"
        self._line(self._style("1;31" if report.failed else "1;32", said))

    def _wrapped(self, text: str, style: str) -> None:
        for line in textwrap.wrap(text, self._width - 16):
            self._line(f"{'':16}{self._style(style, line)}")

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._width else text[: self._width - 1] + "…"

    def _style(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._coloured else text

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
