"""A few seeds of the soak, so that it works on the day when it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its processes")
def test_a_few_seeds() -> None:
    command = [sys.executable, "-m", "tests.client.soak", "--runs", "3", "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert b"0  runs with violations" in done.stdout
