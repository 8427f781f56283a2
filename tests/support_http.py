"""An HTTP client for the stand-in services: one request a connection, streams read as they come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import SocketStream

__all__ = ["Exchange", "events", "fetch", "start"]


class Exchange:
    """One request on a connection of its own."""

    def __init__(self, stream: SocketStream, method: str, target: str, body: bytes) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._start = h11.Request(
            method=method, target=target, headers=[("host", "stand-in"), ("content-length", str(len(body)))]
        )
        self._body = body

    async def send(self) -> h11.Response:
        data = self._http.send(self._start) or b""
        data += self._http.send(h11.Data(data=self._body)) or b""
        await self._stream.send(data + (self._http.send(h11.EndOfMessage()) or b""))
        response = await self._next()
        assert isinstance(response, h11.Response)
        return response

    async def chunks(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def body(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def hang_up(self) -> None:
        await self._stream.aclose()

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                self._http.receive_data(await self._stream.receive())
            except anyio.EndOfStream:
                self._http.receive_data(b"")
        return event


async def start(url: str, body: object, method: str = "POST") -> Exchange:
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    stream = await anyio.connect_tcp(where.hostname, where.port)
    return Exchange(stream, method, url.removeprefix(f"http://{where.netloc}"), json.dumps(body).encode())


async def fetch(url: str, body: object, method: str = "POST") -> tuple[int, bytes]:
    exchange = await start(url, body, method)
    response = await exchange.send()
    data = await exchange.body()
    await exchange.hang_up()
    return response.status_code, data


def events(data: bytes) -> list[dict[str, Any]]:
    frames = [frame for frame in data.decode().split("\n\n") if frame]
    decoded = [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]
    assert [f"event: {event['type']}" for event in decoded] == [frame.partition("\n")[0] for frame in frames]
    return decoded
