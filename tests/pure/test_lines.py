from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.protocol.lines import MAX_LINE, LineSplitter, TooLong


def split(chunks: list[bytes], limit: int = 8) -> list[bytes | str]:
    """All lines of a stream; too long ones as a word, since what was seen of them depends on the chunking."""
    splitter = LineSplitter(limit)
    found = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.eof()
    return ["too long" if isinstance(line, TooLong) else line for line in found]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", []),
        (b"a\n", [b"a"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"\r\n \t\n\n a\n", [b" a"]),
        (b"\x0c\n\x00\n", [b"\x0c", b"\x00"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\nb\r", [b"a", b"b"]),
        (b"12345678\n", [b"12345678"]),
        (b"123456789\n1\n", ["too long", b"1"]),
        (b"1\n" + b"2" * 99 + b"\n3\n", [b"1", "too long", b"3"]),
        (b"2" * 99, ["too long"]),
        (b"2" * 99 + b"\n" + b"3" * 99 + b"\n4", ["too long", "too long", b"4"]),
        ("ü\u2028\u0085\n".encode(), ["ü\u2028\u0085".encode()]),
    ],
)
def test_lines(data: bytes, lines: list[bytes | str]) -> None:
    assert split([data]) == lines
    assert split([data[i : i + 1] for i in range(len(data))]) == lines


@given(
    data=st.lists(st.sampled_from([b"\n", b"\r", b"x", b"yyy", b" ", b"\xff", b"z" * 9])).map(b"".join),
    cuts=st.lists(st.integers(0, 200)),
)
def test_chunking_changes_nothing(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert split([data[a:b] for a, b in pairwise(edges)]) == split([data])


def test_too_long_line_is_reported_before_it_ends_and_once() -> None:
    splitter = LineSplitter(10)
    assert splitter.feed(b"x" * 10) == []
    assert splitter.feed(b"xy") == [TooLong(seen=12, limit=10)]
    assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"x\nnext\n") == [b"next"]


def test_line_without_an_end_takes_bounded_memory() -> None:
    splitter = LineSplitter()
    chunk = b"x" * (1 << 20)
    tracemalloc.start()
    try:
        found = [line for _ in range(4 * MAX_LINE // len(chunk)) for line in splitter.feed(chunk)]
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [type(line) for line in found] == [TooLong]
    assert peak < 3 * MAX_LINE
    assert held < 2 * len(chunk)
    assert splitter.feed(b"\nnext\n") == [b"next"]


def test_small_chunks_are_joined_once() -> None:
    """A long line in tiny chunks keeps one buffer: no chunk objects pile up, and none is looked at again."""
    splitter = LineSplitter()
    total = 1 << 18
    tracemalloc.start()
    try:
        for _ in range(total // 2):
            assert splitter.feed(b"xy") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * total
    assert splitter.feed(b"\n") == [b"xy" * (total // 2)]
