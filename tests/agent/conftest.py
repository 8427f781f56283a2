"""Fixtures of the agent core's tests: one agent over the fake runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support_agent import Client, World, serving


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with serving() as world:
        yield world


@pytest.fixture
async def client(world: World) -> Client:
    return await world.connect()
