"""``sayagain check``: the command."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

import anyio

from sayagain import __version__
from sayagain.check.document import document
from sayagain.check.launch import CommandLauncher
from sayagain.check.model import Check
from sayagain.check.page import page
from sayagain.check.profiles import run_profile
from sayagain.check.runner import Report, run_checks
from sayagain.check.suite import CHECKS
from sayagain.check.terminal import Terminal

__all__ = ["check_command"]

USAGE: Final = 2


def check_command(options: argparse.Namespace) -> int:
    """Run the checks; 0 when no rule that an agent must keep is broken, 1 when one is, 2 for a wrong call."""
    command: list[str] = options.agent[1:] if options.agent[:1] == ["--"] else options.agent
    checks = [check for check in CHECKS if not options.only or any(part in check.id for part in options.only)]
    if options.list:
        for check in checks:
            print(f"{check.id}  ({check.tier.value})\n    {check.rule}\n    {check.source.value}, {check.section}")
        return 0
    if not command or not checks:
        what = "no command of an agent behind --" if checks else "no check has such a name"
        print(f"sayagain check: {what}", file=sys.stderr)
        return USAGE
    report = anyio.run(_run, options, command, checks)
    if options.json is not None:
        text = json.dumps(document(report, shlex.join(command), __version__), indent=2)
        options.json.write_text(f"{text}\n", encoding="utf-8")
    if options.html is not None:
        options.html.write_text(page(report, shlex.join(command), __version__), encoding="utf-8")
    failed = report.failed or (options.strict and any(r.status.value == "fail" for r in report.results))
    return 1 if failed else 0


async def _run(options: argparse.Namespace, command: list[str], checks: list[Check]) -> Report:
    terminal = Terminal()
    terminal.begin(shlex.join(command), options.runtime, len(checks))
    with tempfile.TemporaryDirectory(prefix="sayagain-check-", ignore_cleanup_errors=True) as folder:
        async with run_profile(options.runtime, Path(folder), options.cwd) as profile:
            launcher = CommandLauncher(command, profile.env, patience=profile.patience)
            report = await run_checks(launcher, profile, checks, tell=terminal.tell)
    terminal.end(report)
    return report
