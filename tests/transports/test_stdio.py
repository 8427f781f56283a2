from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from pytest_mock import MockerFixture

from sayagain.transports import ClosedTransport
from sayagain.transports.stdio import StdioTransport

Ends = tuple[int, int, int, int]
"""Our reading and writing descriptor, then the peer's."""


class Descriptors:
    """Owns the peer's descriptors, and ours until a transport takes them."""

    def __init__(self) -> None:
        self.open: set[int] = set()

    def pipes(self) -> Ends:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        return self._keep(ours_in, ours_out, theirs_in, theirs_out)

    def socketpair(self) -> Ends:
        """As Node gives to its children: one socket for each of stdin and stdout."""
        stdin, stdout = socket.socketpair(), socket.socketpair()
        return self._keep(stdin[0].detach(), stdout[0].detach(), stdout[1].detach(), stdin[1].detach())

    def pty(self) -> Ends:
        ours, theirs = os.openpty()
        return self._keep(ours, os.dup(ours), theirs, os.dup(theirs))

    def close(self, fd: int) -> None:
        self.open.discard(fd)
        os.close(fd)

    def _keep(self, *fds: int) -> Ends:
        self.open.update(fds[2:])
        return (fds[0], fds[1], fds[2], fds[3])


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    made = Descriptors()
    yield made
    for fd in made.open:
        os.close(fd)


@pytest.fixture(
    params=["pipes", "pipes of an old kernel", "pipes in a sandbox", "pipes of another build", "socketpair"]
)
def ends(request: pytest.FixtureRequest, descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch) -> Ends:
    if request.param == "socketpair":
        return descriptors.socketpair()
    if (error := REFUSALS.get(request.param)) is not None:

        def refuse(*_: object) -> int:
            raise error

        monkeypatch.setattr(os, "pwritev", refuse, raising=False)
    return descriptors.pipes()


REFUSALS = {
    "pipes of an old kernel": OSError(errno.EOPNOTSUPP, "not supported"),
    "pipes in a sandbox": PermissionError(errno.EPERM, "not permitted"),
    "pipes of another build": NotImplementedError("not available"),
}


@pytest.fixture(params=[False, True], ids=["readiness", "threads"])
def threads(request: pytest.FixtureRequest) -> bool:
    on: bool = request.param
    return on


def drain(fd: int, size: int = 65536) -> bytes:
    data = bytearray()
    while chunk := os.read(fd, size):
        data += chunk
    return bytes(data)


async def test_bytes_go_both_ways(ends: Ends, threads: bool) -> None:
    transport = StdioTransport(*ends[:2], threads=threads)
    with anyio.fail_after(5):
        os.write(ends[3], b"request\n")
        assert await transport.receive() == b"request\n"
        await transport.send(b"answer\n")
        assert os.read(ends[2], 100) == b"answer\n"
        await transport.aclose()
        await transport.aclose()
        assert os.read(ends[2], 100) == b""


async def test_waits_for_bytes_that_come_later(ends: Ends, threads: bool) -> None:
    transport = StdioTransport(*ends[:2], threads=threads)
    received: list[bytes] = []

    async def receive() -> None:
        received.append(await transport.receive())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.lowlevel.checkpoint()
            assert received == []
            os.write(ends[3], b"late\n")
        assert received == [b"late\n"]
        await transport.aclose()


async def test_end_in_the_middle_of_a_line(ends: Ends, threads: bool, descriptors: Descriptors) -> None:
    transport = StdioTransport(*ends[:2], threads=threads)
    os.write(ends[3], b'{"jsonrpc":"2.0","id":1,"me')
    descriptors.close(ends[3])
    with anyio.fail_after(5):
        assert await transport.receive() == b'{"jsonrpc":"2.0","id":1,"me'
        assert await transport.receive() == b""
        assert await transport.receive() == b""
        await transport.aclose()


async def test_large_payload_to_a_slow_reader(ends: Ends, threads: bool) -> None:
    """The event loop goes on while the peer reads nothing: the write waits without blocking it."""
    transport = StdioTransport(*ends[:2], threads=threads)
    payload = bytes(range(256)) * (8 * 4096)
    sent = anyio.Event()
    start_reading = threading.Event()
    read: list[bytes] = []

    def peer() -> None:
        assert start_reading.wait(30)
        read.append(drain(ends[2], 10_000))

    async def send() -> None:
        await transport.send(payload)
        sent.set()
        await transport.aclose()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, peer)
            tasks.start_soon(send)
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            assert not sent.is_set()
            start_reading.set()
    assert read == [payload]


async def test_a_pipe_gets_all_that_it_has_room_for_in_one_write(
    descriptors: Descriptors, mocker: MockerFixture
) -> None:
    ends = descriptors.pipes()
    if not takes_what_fits(ends):
        pytest.skip("this kernel cannot write to a pipe without blocking")
    transport = StdioTransport(*ends[:2])
    write = mocker.spy(os, "pwritev")
    with anyio.fail_after(10):
        await transport.send(bytes(60_000))
    assert write.call_count == 1
    await transport.aclose()
    assert len(drain(ends[2])) == 60_000


def takes_what_fits(ends: Ends) -> bool:
    try:
        os.pwritev(ends[1], [b"x"], -1, os.RWF_NOWAIT)
    except (OSError, AttributeError):
        return False
    return os.read(ends[2], 1) == b"x"


async def test_large_payload_from_the_peer(ends: Ends, threads: bool, descriptors: Descriptors) -> None:
    transport = StdioTransport(*ends[:2], threads=threads)
    payload = bytes(range(256)) * (8 * 4096)

    def peer() -> None:
        rest = memoryview(payload)
        while rest:
            rest = rest[os.write(ends[3], rest) :]
        descriptors.close(ends[3])

    received = bytearray()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, peer)
            while chunk := await transport.receive():
                received += chunk
        await transport.aclose()
    assert received == payload


async def test_peer_that_does_not_read_any_more(ends: Ends, threads: bool, descriptors: Descriptors) -> None:
    transport = StdioTransport(*ends[:2], threads=threads)
    descriptors.close(ends[2])
    with anyio.fail_after(5):
        with pytest.raises(ClosedTransport) as caught:
            await transport.send(b"answer\n")
        assert isinstance(caught.value.__cause__, BrokenPipeError)
        with pytest.raises(ClosedTransport):
            await transport.send(b"answer\n")
        os.write(ends[3], b"still heard\n")
        assert await transport.receive() == b"still heard\n"
        await transport.aclose()


async def test_peer_that_goes_while_a_send_waits(ends: Ends, descriptors: Descriptors) -> None:
    transport = StdioTransport(*ends[:2])

    async def send() -> None:
        with pytest.raises(ClosedTransport):
            await transport.send(b"x" * (1 << 20))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            descriptors.close(ends[2])
        await transport.aclose()


async def test_closing_wakes_what_waits(ends: Ends) -> None:
    transport = StdioTransport(*ends[:2])
    failed: list[str] = []

    async def receive() -> None:
        with pytest.raises(ClosedTransport):
            await transport.receive()
        failed.append("receive")

    async def send() -> None:
        with pytest.raises(ClosedTransport):
            await transport.send(b"x" * (1 << 20))
        failed.append("send")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            tasks.start_soon(send)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            await transport.aclose()
    assert sorted(failed) == ["receive", "send"]


async def test_closing_wakes_a_receive_in_a_thread(descriptors: Descriptors) -> None:
    ends = descriptors.pipes()
    transport = StdioTransport(*ends[:2], threads=True)

    async def receive() -> None:
        with pytest.raises(ClosedTransport):
            await transport.receive()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            await transport.aclose()
        os.fstat(ends[0])
        os.write(ends[3], b"for the thread that is still blocked")


async def test_cancelled_receive_loses_nothing(ends: Ends) -> None:
    transport = StdioTransport(*ends[:2])
    with anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.receive)
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
                os.write(ends[3], b"kept\n")
        assert await transport.receive() == b"kept\n"
        await transport.aclose()


async def test_nothing_follows_a_torn_line(ends: Ends) -> None:
    transport = StdioTransport(*ends[:2])
    with anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.send, b"x" * (1 << 20))
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        with pytest.raises(ClosedTransport):
            await transport.send(b"glued to it\n")
        await transport.aclose()
        assert set(drain(ends[2])) == {ord("x")}


async def test_descriptors_stay_blocking(ends: Ends) -> None:
    transport = StdioTransport(*ends[:2])
    await transport.send(b"x")
    for fd in ends[:2]:
        assert not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
    await transport.aclose()


async def test_descriptors_that_someone_made_nonblocking_work_too(ends: Ends) -> None:
    for fd in ends[:2]:
        os.set_blocking(fd, False)
    transport = StdioTransport(*ends[:2])
    payload = b"y" * (1 << 20)

    async def send() -> None:
        await transport.send(payload)
        await transport.aclose()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            assert await anyio.to_thread.run_sync(drain, ends[2]) == payload


async def test_other_reader_that_was_quicker(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = StdioTransport(*ends[:2])
    read, refusals = os.read, [1, 2]

    def late(fd: int, size: int) -> bytes:
        if refusals:
            refusals.pop()
            raise BlockingIOError
        return read(fd, size)

    os.write(ends[3], b"line\n")
    monkeypatch.setattr(os, "read", late)
    with anyio.fail_after(5):
        assert await transport.receive() == b"line\n"
        await transport.aclose()
    assert refusals == []


async def test_regular_files(tmp_path: Path, threads: bool) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    payload = b"z" * 200_000
    source.write_bytes(payload)
    transport = StdioTransport(os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT), threads=threads)
    received = bytearray()
    with anyio.fail_after(5):
        while chunk := await transport.receive():
            received += chunk
        await transport.send(payload)
        await transport.aclose()
    assert received == payload
    assert target.read_bytes() == payload


async def test_null_device() -> None:
    transport = StdioTransport(os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
    with anyio.fail_after(5):
        assert await transport.receive() == b""
        await transport.send(b"x" * 100_000)
        await transport.aclose()


async def test_terminal_that_hangs_up_ends_the_input(descriptors: Descriptors) -> None:
    ends = descriptors.pty()
    transport = StdioTransport(*ends[:2])
    with anyio.fail_after(5):
        os.write(ends[3], b"typed")
        assert await transport.receive() == b"typed"
        descriptors.close(ends[2])
        descriptors.close(ends[3])
        assert await transport.receive() == b""
        await transport.aclose()


async def test_full_disk_closes_the_output() -> None:
    try:
        full = os.open("/dev/full", os.O_WRONLY)
    except OSError:
        pytest.skip("no /dev/full here")
    transport = StdioTransport(os.open(os.devnull, os.O_RDONLY), full)
    with anyio.fail_after(5):
        with pytest.raises(ClosedTransport) as caught:
            await transport.send(b"x")
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
        await transport.aclose()


async def test_event_loop_that_cannot_wait_for_a_descriptor(
    descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an epoll that refuses with EPERM: the I/O goes to threads."""
    ends = descriptors.pipes()
    refused: list[str] = []

    def refuse(fd: int) -> Callable[[object], object]:
        refused.append("refused")
        raise PermissionError(errno.EPERM, "no readiness here")

    monkeypatch.setattr(anyio, "wait_readable", refuse)
    monkeypatch.setattr(anyio, "wait_writable", refuse)
    transport = StdioTransport(*ends[:2])
    payload = b"w" * (1 << 20)
    received: list[bytes] = []

    async def receive() -> None:
        received.append(await transport.receive())

    async def send() -> None:
        await transport.send(payload)
        await transport.aclose()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            while not refused:
                await anyio.lowlevel.checkpoint()
            os.write(ends[3], b"line\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            assert await anyio.to_thread.run_sync(drain, ends[2]) == payload
    assert received == [b"line\n"]


def test_transports_close_all_that_they_open(descriptors: Descriptors) -> None:
    async def run() -> None:
        for make in (descriptors.pipes, descriptors.socketpair):
            ends = make()
            transport = StdioTransport(*ends[:2])
            await transport.send(b"x")
            await transport.aclose()
            for fd in ends[2:]:
                descriptors.close(fd)

    def count() -> int:
        found = 0
        for fd in range(256):
            with suppress(OSError):
                os.fstat(fd)
                found += 1
        return found

    before = count()
    anyio.run(run)
    assert count() == before
