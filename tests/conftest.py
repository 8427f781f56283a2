"""Fixtures for all tests."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Our own layers run on both backends; tests of the real runtimes override this with asyncio alone."""
    backend: str = request.param
    return backend
