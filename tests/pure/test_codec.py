from __future__ import annotations

import json
import subprocess
import sys
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.protocol.codec import MAX_DEPTH, dumps, dumps_fast, loads

ENCODERS = [dumps, dumps_fast]

# Every code point, lone surrogates included. (A high one before a low one is left out: JSON cannot tell such a pair of
# escapes from the character that they spell.)
TEXT = st.text(st.characters(exclude_categories=[])).map(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@pytest.mark.parametrize("encode", ENCODERS)
@given(value=JSON)
def test_round_trip(encode: Any, value: Any) -> None:
    line = encode(value)
    assert loads(line) == value
    assert json.loads(line) == value
    assert len(line.decode().splitlines()) == 1


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("\ud83d", rb'"\ud83d"'),
        ({"\ude00": ["a\ud83d\nb"]}, rb'{"\ude00":["a\ud83d\nb"]}'),
        ("\\\ud83d", rb'"\\\ud83d"'),
        ("\U0001f600", '"\U0001f600"'.encode()),
        ("a\u2028b\u2029c\u0085d\u2027", rb'"a\u2028b\u2029c\u0085d' + '\u2027"'.encode()),
        ("\x00\x1b\x7f\r\n", b'"\\u0000\\u001b\x7f\\r\\n"'),
        (2**64, b"18446744073709551616"),
        (-(10**100), b"-1" + b"0" * 100),
        ({"a": float("nan"), "b": [float("inf"), 1.5]}, b'{"a":null,"b":[null,1.5]}'),
        ({"a": float("nan"), "b": "\ud83d"}, rb'{"a":null,"b":"\ud83d"}'),
        (MappingProxyType({"a": (1, MappingProxyType({}))}), b'{"a":[1,{}]}'),
        (range(2), b"[0,1]"),
    ],
)
def test_encoding(encode: Any, value: Any, line: bytes) -> None:
    assert encode(value) == line


@pytest.mark.parametrize("encode", ENCODERS)
def test_what_is_no_json_is_refused(encode: Any) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="too deep"):
        encode(deep)
    with pytest.raises(TypeError, match="object is no JSON value"):
        encode({"a": object()})


@pytest.mark.parametrize(
    "line",
    [
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"9" * 5000,
        b"\xff",
        b'"\xed\xa0\xbd"',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"{'a':1}",
        b'"\x00"',
        b"\x00" * 300,
        b"[1,]",
        b"01",
        b"",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'[{"a":' * 101 + b"1" + b"}]" * 101,
    ],
)
def test_bad_text(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(line)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (rb'"\ud83d"', "\ud83d"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b"1" + b"0" * 4000, 10**4000),
        (b" [1e2 , -0] \t", [100.0, 0]),
        (b"[" + b"[]," * 1000 + b'"' + b"[" * 1000 + b'"]', [[]] * 1000 + ["[" * 1000]),
    ],
)
def test_good_text(line: bytes, value: Any) -> None:
    assert loads(line) == value


def test_deepest_nesting_that_is_taken_can_be_sent_again() -> None:
    line = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert [encode(loads(line)) for encode in ENCODERS] == [line, line]


def test_errors_quote_nothing_of_the_line() -> None:
    for line in (b'{"idempotencyKey":"secret', b'"secret\xff"', b'{"a":secret}'):
        with pytest.raises(ValueError, match=r".") as caught:
            loads(line)
        assert "secret" not in str(caught.value)


def test_only_updates_wait_for_the_fast_encoder() -> None:
    program = """
import sys
from sayagain.protocol.jsonrpc import Decoder, encode_notification, encode_result
[request] = Decoder().feed(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\\n')
encode_result(request.id, {"a": 1})
assert not any(name.startswith("pydantic") for name in sys.modules)
encode_notification("session/update", {"a": 1})
assert "pydantic_core" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
