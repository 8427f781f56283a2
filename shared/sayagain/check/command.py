"""``sayagain check``: the command."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anyio

from sayagain import __version__
from sayagain.check.document import document
from sayagain.check.launch import CommandLauncher
from sayagain.check.model import Check, Status
from sayagain.check.page import page
from sayagain.check.profiles import run_profile
from sayagain.check.runner import Report, run_checks
from sayagain.check.suite import CHECKS
from sayagain.check.terminal import Terminal
from sayagain.legible import clean

__all__ = ["check_command"]

USAGE: Final = 2

PLAIN_LIMIT: Final = 1800.0
"""Seconds. About two hundred short prompts, to a model that takes its time."""

SERVICE_LIMIT: Final = 900.0
"""Seconds. The stand-ins answer at once: an agent with a runtime behind it takes one to two minutes (measured)."""


def check_command(options: argparse.Namespace) -> int:
    """Run the checks.

    0 when no rule that an agent must keep is broken, 1 when one is, 2 for a wrong call; 128 and the signal's number.
    """
    command: list[str] = options.agent[1:] if options.agent[:1] == ["--"] else options.agent
    checks = [check for check in CHECKS if not options.only or any(part in check.id for part in options.only)]
    if options.list:
        for check in checks:
            print(f"{check.id}  ({check.tier.value})\n    {check.rule}\n    {check.source.value}, {check.section}")
        return 0
    if wrong := _wrong(options, command, checks):
        print(f"sayagain check: {clean(wrong)}", file=sys.stderr)
        return USAGE
    signals: list[signal.Signals] = []
    report = anyio.run(_run, options, command, checks, signals)
    written = [
        _write(options.json, lambda: f"{json.dumps(document(report, shlex.join(command), __version__), indent=2)}\n"),
        _write(options.html, lambda: page(report, shlex.join(command), __version__)),
    ]
    if signals:
        return 128 + signals[0]
    failed = report.failed or (options.strict and any(r.status is Status.FAIL for r in report.results))
    return 1 if failed or not all(written) else 0


def _wrong(options: argparse.Namespace, command: Sequence[str], checks: Sequence[Check]) -> str:
    """What is wrong with the call; all that can be known before the run, which may take minutes."""
    if not checks:
        return "no check has such a name"
    if not command:
        return "no command of an agent behind --"
    if shutil.which(command[0]) is None:
        return f"there is no command {command[0]}"
    if options.cwd is not None and not options.cwd.is_dir():
        return f"{options.cwd} is no directory"
    for path in (options.json, options.html):
        if path is not None and (reason := _unwritable(path)):
            return f"{path} cannot be written: {reason}"
    return ""


def _unwritable(path: Path) -> str:
    there = path.exists()
    try:
        with path.open("ab"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _write(path: Path | None, text: Callable[[], str]) -> bool:
    """Whether it is written, if it should be."""
    if path is not None:
        try:
            path.write_text(text(), encoding="utf-8")
        except OSError as error:
            print(f"sayagain check: {clean(str(path))} cannot be written: {error.strerror}", file=sys.stderr)
            return False
    return True


async def _run(
    options: argparse.Namespace, command: list[str], checks: list[Check], signals: list[signal.Signals]
) -> Report:
    async def watch(stop: Callable[[str], None]) -> None:
        # What was ignored when we were started, as of a job in the background, stays ignored.
        ending = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if sys.platform != "win32" else []))
        wanted = [number for number in ending if signal.getsignal(number) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(*wanted) as received:
            async for number in received:
                signals.append(number)
                stop(f"ended by {number.name}")
                return

    terminal = Terminal()
    terminal.begin(shlex.join(command), options.runtime, len(checks))
    limit = options.limit or (PLAIN_LIMIT if options.runtime == "plain" else SERVICE_LIMIT)
    with tempfile.TemporaryDirectory(prefix="sayagain-check-", ignore_cleanup_errors=True) as folder:
        async with run_profile(options.runtime, Path(folder), options.cwd, options.patience) as profile:
            launcher = CommandLauncher(command, profile.env)
            report = await run_checks(launcher, profile, checks, limit=limit, tell=terminal.tell, watch=watch)
    terminal.end(report)
    return report
