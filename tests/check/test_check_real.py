"""Our agents in front of the real runtimes keep every rule that can be tried on them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sayagain.check.launch import CommandLauncher
from sayagain.check.model import Feature, Status
from sayagain.check.profiles import run_profile
from sayagain.check.runner import run_checks

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("runtime", ["claude", "codex"])
async def test_our_agents_pass(runtime: str, tmp_path: Path) -> None:
    if runtime == "codex":
        pytest.importorskip("codex_cli_bin")
    async with run_profile(runtime, tmp_path, None) as profile:
        launcher = CommandLauncher([sys.executable, "-m", "sayagain", runtime], profile.env)
        report = await run_checks(launcher, profile)
    assert [(r.check.id, r.reason) for r in report.results if r.status is Status.FAIL] == []
    skipped = {r.check.id for r in report.results if r.status is Status.SKIPPED}
    assert skipped == {r.check.id for r in report.results if Feature.SPOIL in r.check.needs}
