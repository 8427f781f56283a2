"""Places for a client: an outbox, and agents of several kinds."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def outbox_path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "outbox.db"
