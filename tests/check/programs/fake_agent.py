"""Our agent over the fake runtime, on standard input and output; its store ends with it.

``--pids FILE`` notes each process, ``--stay`` does not end with the input.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import anyio

from sayagain.agent import Agent
from sayagain.testing.fake_runtime import FakeRuntime
from sayagain.transports.stdio import take_stdio


async def serve(transport: Any) -> None:
    async with FakeRuntime() as runtime, Agent(runtime) as agent:
        await agent.serve(transport)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pids", type=Path)
    parser.add_argument("--stay", action="store_true")
    options = parser.parse_args()
    if options.pids is not None:
        with options.pids.open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    anyio.run(serve, take_stdio())
    while options.stay:
        time.sleep(1000)
