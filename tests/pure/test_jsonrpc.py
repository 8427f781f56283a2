from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayagain.errors import to_wire
from sayagain.protocol.jsonrpc import (
    MALFORMED,
    MAX_BATCH,
    Batch,
    BatchReply,
    Decoder,
    Incoming,
    Invalid,
    Notification,
    PendingRequests,
    Request,
    Response,
    encode_batch,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

_ERROR = {"code": 1, "message": "m"}


def decode(*chunks: bytes, max_line: int = 10_000_000) -> list[Incoming]:
    decoder = Decoder(max_line)
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.eof()


def decode_one(message: Any) -> Incoming:
    (event,) = decode(json.dumps(message).encode() + b"\n")
    return event


def plain(event: Incoming) -> Any:
    """An event by value: exceptions compare by identity."""
    if isinstance(event, Batch):
        return [plain(item) for item in event.items]
    if isinstance(event, Invalid):
        return (to_wire(event.error)["code"], event.id, event.answered)
    return event


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"id": 1, "method": "a", "params": {"b": 1}}, Request(1, "a", {"b": 1})),
        ({"id": "1", "method": "a"}, Request("1", "a", {})),
        ({"id": "", "method": "a", "params": None}, Request("", "a", {})),
        ({"id": 0, "method": "", "extra": 1}, Request(0, "", {})),
        ({"id": -(10**30), "method": "a"}, Request(-(10**30), "a", {})),
        ({"id": "\ud83d", "method": "a"}, Request("\ud83d", "a", {})),
        ({"method": "a", "params": {}}, Notification("a", {})),
        ({"method": "a"}, Notification("a", {})),
        ({"id": 1, "result": {"a": 1}}, Response(1, {"a": 1})),
        ({"id": 1, "result": None}, Response(1, None)),
        ({"id": 1, "result": 1, "error": None}, Response(1, 1)),
        ({"id": 1, "result": None, "error": _ERROR}, Response(1, None, _ERROR)),
        ({"id": 1, "error": _ERROR}, Response(1, None, _ERROR)),
        ({"id": None, "error": _ERROR}, Response(None, None, _ERROR)),
        ({"id": 1, "method": "a", "result": 1}, Request(1, "a", {})),
    ],
)
def test_valid_message(message: dict[str, Any], event: Incoming) -> None:
    assert decode_one({"jsonrpc": "2.0", **message}) == event


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (1, (-32600, None, True)),
        (None, (-32600, None, True)),
        ("text", (-32600, None, True)),
        ({}, (-32600, None, True)),
        ([], (-32600, None, True)),
        ({"id": 1, "method": "a"}, (-32600, 1, True)),
        ({"jsonrpc": "1.0", "id": 1, "method": "a"}, (-32600, 1, True)),
        ({"jsonrpc": 2.0, "id": 1, "method": "a"}, (-32600, 1, True)),
        ({"jsonrpc": "2.0"}, (-32600, None, True)),
        ({"jsonrpc": "2.0", "id": 5}, (-32600, 5, True)),
        *(
            ({"jsonrpc": "2.0", "id": bad, "method": "a"}, (-32600, None, True))
            for bad in (None, True, False, 1.0, 1.5, {}, {"a": 1}, [], [1])
        ),
        ({"jsonrpc": "2.0", "id": 1, "method": 1}, (-32600, 1, True)),
        ({"jsonrpc": "2.0", "id": 1, "method": None}, (-32600, 1, True)),
        ({"jsonrpc": "2.0", "method": 1, "params": "bar"}, (-32600, None, True)),
        ({"jsonrpc": "2.0", "method": "a", "params": "bar"}, (-32600, None, True)),
        ({"jsonrpc": "2.0", "id": 1, "method": "a", "params": 0}, (-32600, 1, True)),
        ({"jsonrpc": "2.0", "id": 1, "method": "a", "params": False}, (-32600, 1, True)),
        ({"jsonrpc": "2.0", "id": 1, "method": "a", "params": []}, (-32602, 1, True)),
        ({"jsonrpc": "2.0", "id": 1, "method": "a", "params": [1]}, (-32602, 1, True)),
        ({"jsonrpc": "2.0", "method": "a", "params": [1]}, (-32602, None, False)),
    ],
)
def test_invalid_message(message: Any, expected: Any) -> None:
    assert plain(decode_one(message)) == expected


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ({"id": 1, "error": "text"}, 1),
        ({"id": 1, "error": None}, 1),
        ({"id": 1, "error": [], "result": 1}, 1),
        ({"jsonrpc": "1.0", "id": 1, "error": 7}, 1),
        ({"id": True, "error": 7}, None),
        ({"id": 1.0, "error": 7}, None),
        ({"error": 7}, None),
        ({"id": 1, "error": {"message": "no code"}}, 1),
        ({"id": 1, "error": {"code": -32602}}, 1),
        ({"id": 1, "error": {"code": -32602, "message": None}}, 1),
        *(
            ({"id": 1, "error": {"code": code, "message": "m"}}, 1)
            for code in (None, "-32602", -32602.0, True, 1 << 40)
        ),
        ({"id": 1, "error": {"code": -32602, "message": "m"}, "result": {"messageId": "m"}}, 1),
    ],
)
def test_malformed_answer_is_an_error_response_and_never_answered(message: Any, request_id: Any) -> None:
    event = decode_one(message)
    assert isinstance(event, Response)
    assert event.id == request_id
    assert event.error
    # No code of the peer's: it refused nothing.
    assert (event.error["code"], event.error["data"]) == (-32603, {"reason": MALFORMED})


@pytest.mark.parametrize(
    ("error", "said"),
    [("boom", ": boom"), ({"message": "x" * 999}, ": " + "x" * 200), ("", ""), ({"code": -32602}, ""), ([], "")],
)
def test_a_malformed_answer_is_told_with_what_it_says(error: Any, said: str) -> None:
    event = decode_one({"jsonrpc": "2.0", "id": 1, "error": error})
    assert isinstance(event, Response)
    assert event.error
    assert event.error["message"] == f"The peer sent a malformed answer{said}"


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"\xff\xfe{}",
        b"\x00" * 300,
        b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"a","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":"\xed\xa0\xbd"}}',
        b"\xef\xbb\xbf" * 2 + b"{}",
        b"x" * 10_000_001,
    ],
)
def test_bad_line_is_a_parse_error_and_the_stream_goes_on(line: bytes) -> None:
    good = b'{"jsonrpc":"2.0","method":"a"}\n'
    events = decode(good + line + b"\n" + good)
    assert [plain(event) for event in events] == [Notification("a", {}), (-32700, None, True), Notification("a", {})]


def test_too_long_line_says_how_much_was_seen() -> None:
    (event,) = decode(b"x" * 20, max_line=10)
    assert isinstance(event, Invalid)
    assert str(event.error) == "Parse error: line longer than 10 bytes (20 seen); skipped to its end"


def test_byte_order_mark_is_taken_on_the_first_line_only() -> None:
    good = b'{"jsonrpc":"2.0","method":"a"}\n'
    assert decode(b"\xef\xbb\xbf" + good) == [Notification("a", {})]
    assert decode(b"\n\r\n\xef\xbb\xbf" + good) == [Notification("a", {})]
    assert decode(b"\xef\xbb\xbf\n" + good) == [Notification("a", {})]
    assert [plain(event) for event in decode(good + b"\xef\xbb\xbf" + good)][1] == (-32700, None, True)


def test_last_line_without_newline() -> None:
    assert decode(b'{"jsonrpc":"2.0","method":"a"}') == [Notification("a", {})]
    assert [plain(event) for event in decode(b'{"jsonrpc":"2.0","id":1,"meth')] == [(-32700, None, True)]


def test_last_of_duplicate_keys_wins() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}\n') == [Request(2, "a", {})]


def test_batch_entries_stand_for_themselves() -> None:
    event = decode_one(
        [{"jsonrpc": "2.0", "id": 1, "method": "a"}, 1, [], {"jsonrpc": "2.0", "method": "b"}, {"id": 3, "result": 4}]
    )
    assert isinstance(event, Batch)
    assert plain(event) == [
        Request(1, "a", {}),
        (-32600, None, True),
        (-32600, None, True),
        Notification("b", {}),
        Response(3, 4),
    ]


def test_oversized_batch_is_refused_as_a_whole() -> None:
    assert isinstance(decode_one([1] * MAX_BATCH), Batch)
    assert plain(decode_one([1] * (MAX_BATCH + 1))) == (-32600, None, True)


CORPUS = [
    b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"prompt":[{"type":"text","text":"\xc3\xbc\\ud83d"}]}}',
    b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}',
    b'{"jsonrpc":"2.0","id":"x","result":null}',
    b'[{"jsonrpc":"2.0","id":1,"method":"a"},1]',
    b"[]",
    b"",
    b"\r",
    b'{"id":',
    b"\xef\xbb\xbf{}",
    b"\xff" * 5,
    b"y" * 200,
]


@given(
    lines=st.lists(st.sampled_from(CORPUS)),
    ending=st.sampled_from([b"\n", b"\r\n", b""]),
    cuts=st.lists(st.integers(0, 600)),
)
def test_chunking_changes_nothing(lines: list[bytes], ending: bytes, cuts: list[int]) -> None:
    data = b"\n".join(lines) + ending
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(edges)]
    whole = [plain(event) for event in decode(data, max_line=150)]
    assert [plain(event) for event in decode(*chunks, max_line=150)] == whole


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[])),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code"]), inner)
    ),
)


@given(chunks=st.lists(st.binary() | ANY_JSON.map(lambda value: json.dumps(value).encode() + b"\n")))
def test_no_bytes_raise_and_every_answer_can_be_encoded(chunks: list[bytes]) -> None:
    for event in decode(*chunks):
        if isinstance(event, Batch):
            reply = BatchReply(event)
            for position, item in enumerate(event.items):
                if isinstance(item, Request):
                    reply.add(position, encode_result(item.id, item.params))
            assert reply.complete
            reply.encode()
        elif isinstance(event, Invalid):
            encode_error(event.id, to_wire(event.error))
        elif isinstance(event, Request):
            assert decode(encode_request(event.id, event.method, event.params)) == [event]
        elif isinstance(event, Notification):
            assert decode(encode_notification(event.method, event.params)) == [event]


IDS = st.integers(-(10**30), 10**30) | st.text()
PARAMS = st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.booleans()))


@given(request_id=IDS, method=st.text(), params=PARAMS)
def test_what_we_encode_reads_back(request_id: str | int, method: str, params: dict[str, Any]) -> None:
    error = {"code": -32603, "message": method, "data": params}
    lines = [
        encode_request(request_id, method, params),
        encode_notification(method, params),
        encode_notification("session/update", params),
        encode_result(request_id, params),
        encode_error(request_id, error),
        encode_error(None, error),
    ]
    events = [
        Request(request_id, method, params),
        Notification(method, params),
        Notification("session/update", params),
        Response(request_id, params),
        Response(request_id, None, error),
        Response(None, None, error),
    ]
    for line in lines:
        assert line.endswith(b"\n")
        assert len(line.decode().splitlines()) == 1
    assert decode(*lines) == events
    assert decode(encode_batch(lines)) == [Batch(tuple(events))]


def test_lines_are_compact() -> None:
    assert encode_result(1, {"a": [1, 2]}) == b'{"jsonrpc":"2.0","id":1,"result":{"a":[1,2]}}\n'
    assert encode_error(None, {"code": 1}) == b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}\n'
    assert encode_request("é", "a", {}) == '{"jsonrpc":"2.0","id":"é","method":"a","params":{}}\n'.encode()
    assert encode_notification("session/update", {}) == b'{"jsonrpc":"2.0","method":"session/update","params":{}}\n'


def batch(*messages: Any) -> Batch:
    event = decode_one([{"jsonrpc": "2.0", **m} if isinstance(m, dict) else m for m in messages])
    assert isinstance(event, Batch)
    return event


def test_batch_reply_keeps_the_order_of_the_entries() -> None:
    reply = BatchReply(batch({"id": "b", "method": "x"}, 1, {"method": "n"}, {"id": 2, "method": "x"}))
    assert not reply.complete
    reply.add(3, encode_result(2, "second"))
    assert not reply.complete
    reply.add(0, encode_error("b", {"code": 1, "message": "first"}))
    assert reply.complete
    line = reply.encode()
    assert line is not None
    assert line.endswith(b"]\n")
    first, invalid, second = json.loads(line)
    assert first == {"jsonrpc": "2.0", "id": "b", "error": {"code": 1, "message": "first"}}
    assert (invalid["id"], invalid["error"]["code"]) == (None, -32600)
    assert second == {"jsonrpc": "2.0", "id": 2, "result": "second"}


def test_batch_without_requests_gets_no_reply() -> None:
    reply = BatchReply(batch({"method": "n"}, {"method": "n", "params": [1]}, {"id": 1, "result": 1}))
    assert reply.complete
    assert reply.encode() is None


def test_batch_of_invalid_entries_is_complete_at_once() -> None:
    reply = BatchReply(batch(1, 2, {"id": 7, "method": "a", "params": []}))
    assert reply.complete
    line = reply.encode()
    assert line is not None
    assert [(entry["id"], entry["error"]["code"]) for entry in json.loads(line)] == [
        (None, -32600),
        (None, -32600),
        (7, -32602),
    ]


def test_batch_with_one_id_twice_answers_both() -> None:
    reply = BatchReply(batch({"id": 1, "method": "a"}, {"id": 1, "method": "b"}))
    reply.add(1, encode_result(1, "b"))
    assert not reply.complete
    with pytest.raises(KeyError):
        reply.add(1, encode_result(1, "again"))
    reply.add(0, encode_result(1, "a"))
    assert [entry["result"] for entry in json.loads(reply.encode() or b"")] == ["a", "b"]


def test_pending_requests() -> None:
    pending = PendingRequests[str]()
    assert [pending.add("a"), pending.add("b"), pending.add("c")] == [1, 2, 3]
    assert pending.resolve(2) == "b"
    assert pending.resolve(2) is None
    for never_sent in (99, "1", None, 0, -1):
        assert pending.resolve(never_sent) is None
    assert len(pending) == 2
    assert pending.drain() == ["a", "c"]
    assert len(pending) == 0
    assert pending.resolve(1) is None
    assert pending.add("d") == 4


def test_flood_of_small_lines_in_any_cut_gives_every_event() -> None:
    flood = b'{"jsonrpc":"2.0","method":"a"}\n' * 50_000
    assert decode(flood) == [Notification("a", {})] * 50_000
    assert decode(*(flood[i : i + 1000] for i in range(0, len(flood), 1000))) == [Notification("a", {})] * 50_000


@pytest.mark.parametrize(
    ("head", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"x":"', 7),
        (b'{"jsonrpc": "2.0", "id": "a\\"b", "method": "m", "params": "', 'a"b'),
        (b'{"id":-3,"jsonrpc":"2.0","params":"', -3),
        (b'{"jsonrpc":"2.0","method":"m","id":9,"params":"', 9),
        (b'{"jsonrpc":"2.0","method":"m","params":{"id":9,"x":"', None),
        (b'{"jsonrpc":"2.0","id":null,"x":"', None),
        (b'[{"jsonrpc":"2.0","id":1,"x":"', None),
        (b'{"jsonrpc":"2.0","id":1.5,"x":"', None),
        (b'garbage "id":1,', None),
    ],
)
def test_a_request_that_is_too_long_is_answered_under_its_own_id(head: bytes, request_id: object) -> None:
    decoder = Decoder(max_line=1000)
    for chunk in (1, 64, 5000):
        line = head + b"x" * 5000
        events = [event for start in range(0, len(line), chunk) for event in decoder.feed(line[start : start + chunk])]
        (event,) = [*events, *decoder.feed(b"\n")]
        assert isinstance(event, Invalid)
        assert event.error.code == -32700
        assert event.id == request_id
