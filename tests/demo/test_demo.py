"""The demo on both real runtimes: it counts in the runtime's own record, and a wrong count is an exit status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sayagain.cli import DEMOS, main
from sayagain.demo.profiles import PROFILES

pytestmark = pytest.mark.real


@pytest.fixture(params=DEMOS)
def runtime(request: pytest.FixtureRequest) -> str:
    if request.param == "codex":
        pytest.importorskip("codex_cli_bin")
    return str(request.param)


def test_one_message_is_stored_and_the_model_is_asked_once(runtime: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", runtime]) == 0
    shown = capsys.readouterr().out
    assert f"real {PROFILES[runtime].title}" in shown
    assert "KILLED" in shown
    assert 'user_message "Deploy the new version"' in shown
    assert shown.rstrip().endswith(
        "prompts sent: 2; messages stored in the transcript: 1; times the model was asked: 1; "
        "replays marked complete: 1"
    )


def test_a_message_that_is_stored_twice_is_told_by_the_exit_status(
    runtime: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = PROFILES[runtime]

    def twice(folder: Path, session_id: str) -> list[Any]:
        return [*honest.rows(folder, session_id)] * 2

    monkeypatch.setattr("sayagain.demo.story.PROFILES", {runtime: replace(honest, rows=twice)})
    assert main(["demo", runtime]) == 1
    assert "messages stored in the transcript: 2" in capsys.readouterr().out


def test_every_demo_has_a_profile() -> None:
    assert set(PROFILES) == set(DEMOS)
