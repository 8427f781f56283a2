from __future__ import annotations

import anyio
import pytest

from sayagain.transports import ClosedTransport, Transport
from sayagain.transports.memory import memory_transports


async def read_all(transport: Transport) -> bytes:
    data = bytearray()
    while chunk := await transport.receive():
        data += chunk
    return bytes(data)


async def test_bytes_go_both_ways() -> None:
    left, right = memory_transports()
    with anyio.fail_after(5):
        await left.send(b"one\n")
        await left.send(b"two\n")
        assert await right.receive() == b"one\ntwo\n"
        await right.send(b"back\n")
        assert await left.receive() == b"back\n"


async def test_chunk_bounds_one_receive() -> None:
    left, right = memory_transports(chunk=3)
    with anyio.fail_after(5):
        await left.send(b"abcdefg")
        assert [await right.receive() for _ in range(3)] == [b"abc", b"def", b"g"]


@pytest.mark.parametrize(("buffer", "chunk"), [(64 * 1024, 64 * 1024), (1000, 7), (1, 1)])
async def test_large_payload_arrives_whole(buffer: int, chunk: int) -> None:
    left, right = memory_transports(buffer=buffer, chunk=chunk)
    payload = bytes(range(256)) * (40 if buffer == 1 else 4000)

    async def write() -> None:
        await left.send(payload)
        await left.aclose()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            assert await read_all(right) == payload


async def test_slow_reader_holds_the_sender_back() -> None:
    left, right = memory_transports(buffer=10)
    sent = anyio.Event()

    async def write() -> None:
        await left.send(b"x" * 25)
        sent.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            assert not sent.is_set()
            assert await right.receive() == b"x" * 10
            await anyio.wait_all_tasks_blocked()
            assert not sent.is_set()
            assert await right.receive() == b"x" * 10
            await sent.wait()
            assert await right.receive() == b"x" * 5


async def test_half_close_leaves_the_other_direction_open() -> None:
    left, right = memory_transports()
    with anyio.fail_after(5):
        await left.send(b"last words")
        left.send_eof()
        with pytest.raises(ClosedTransport):
            await left.send(b"more")
        assert await right.receive() == b"last words"
        assert await right.receive() == b""
        assert await right.receive() == b""
        await right.send(b"answer")
        assert await left.receive() == b"answer"


async def test_peer_that_closed_is_seen_on_both_sides() -> None:
    left, right = memory_transports()
    with anyio.fail_after(5):
        await left.send(b"last words")
        await left.aclose()
        await left.aclose()
        assert await right.receive() == b"last words"
        assert await right.receive() == b""
        with pytest.raises(ClosedTransport):
            await right.send(b"nobody is there")
        with pytest.raises(ClosedTransport):
            await left.receive()


async def test_closing_wakes_what_waits() -> None:
    left, right = memory_transports(buffer=4)
    failed: list[str] = []

    async def receive() -> None:
        with pytest.raises(ClosedTransport):
            await left.receive()
        failed.append("receive")

    async def send() -> None:
        with pytest.raises(ClosedTransport):
            await left.send(b"more than fits")
        failed.append("send")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            await left.aclose()
        assert sorted(failed) == ["receive", "send"]
        assert await right.receive() == b"more"
        assert await right.receive() == b""


async def test_cancelled_send_ends_the_stream_at_its_torn_line() -> None:
    left, right = memory_transports(buffer=4)
    with anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(left.send, b"a line that does not fit")
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        with pytest.raises(ClosedTransport):
            await left.send(b"glued to it")
        assert await read_all(right) == b"a li"


async def test_send_that_is_cancelled_before_its_first_byte_leaves_the_stream_whole() -> None:
    left, right = memory_transports(buffer=4)
    with anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await left.send(b"lost")
        await left.send(b"kept")
        assert await right.receive() == b"kept"


async def test_two_senders_at_once_are_a_mistake() -> None:
    left, right = memory_transports(buffer=4)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(left.send, b"does not fit")
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(anyio.BusyResourceError):
                await left.send(b"interleaved")
            tasks.cancel_scope.cancel()
        assert await read_all(right) == b"does"
