"""A client that takes one prompt from its user and is killed: ``submit.py OUTBOX CWD TEXT -- COMMAND …``.

It prints the session's id, then ``submitted`` when the outbox has the prompt, then ``inserted``.
"""

from __future__ import annotations

import sys

import anyio

from sayagain.client import with_retries


async def main(outbox: str, cwd: str, text: str, command: list[str]) -> None:
    async with with_retries(command, outbox=outbox) as client:
        session = await client.new_session(cwd)
        print(session.session_id, flush=True)
        prompt = await session.submit(text)
        print("submitted", flush=True)
        await prompt.inserted()
        print("inserted", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    outbox, cwd, text, _, *command = sys.argv[1:]
    anyio.run(main, outbox, cwd, text, command)
