"""The stand-in model service outlives clients that are killed in the middle of a reply, and ends as one comes."""

from __future__ import annotations

import json
import socket
import struct
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel

from sayagain.testing.messages_api import serve_messages
from sayagain.testing.messages_script import Script, Text


async def test_a_client_that_is_reset_in_the_middle_of_a_reply_ends_alone() -> None:
    body = json.dumps({"model": "m", "stream": True, "messages": [], "tools": [{"name": "t"}]}).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nhost: stand-in\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    async with serve_messages(Script(default=(Text("x" * 1_000_000, chunk=1000),) * 20)) as service:
        port = urlsplit(service.url).port
        assert port is not None
        for _ in range(5):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(head + body)
                await stream.receive(1)
                # Its system sends a reset, as for a killed process with unread data.
                raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"GET /stand-in/requests HTTP/1.1\r\nhost: stand-in\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
    assert len(service.requests) == 5


async def test_a_client_that_comes_as_the_service_ends_is_no_error() -> None:
    async with serve_messages(Script()) as service:
        await anyio.wait_all_tasks_blocked()
        where = urlsplit(service.url)
        with socket.create_connection((where.hostname, where.port)):
            # The loop has seen the client, and no task was told.
            await anyio.lowlevel.checkpoint()
