"""Opens an outbox for each line that it reads, and says how that went. usage: python open.py"""

from __future__ import annotations

import os
import sys

import anyio

from sayagain.client import Outbox, OutboxError


async def main() -> None:
    for line in sys.stdin:
        try:
            async with Outbox(line.removesuffix("\n")) as outbox:
                await outbox.add("s", "/", str(os.getpid()), [{"type": "text", "text": "x"}])
        except OutboxError as error:
            print(repr(error.__cause__ or error), flush=True)
        else:
            print("opened", flush=True)


anyio.run(main)
