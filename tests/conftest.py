"""Fixtures for all tests."""

from __future__ import annotations

import signal

import pytest

# A shell starts what runs in its background with interrupts ignored, and every process of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Our own layers run on both backends; tests of the real runtimes override this with asyncio alone."""
    backend: str = request.param
    return backend
