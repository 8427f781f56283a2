"""JSON-RPC 2.0 without I/O: bytes in and events out, messages in and lines out.

ACP's profile of it (rules RPC-1 to RPC-8): one message or batch per line, ids are strings or integers, params are
objects. The receiving side is total: whatever the bytes, :class:`Decoder` raises nothing, and what is wrong comes out
as :class:`Invalid` with the error to answer. An answer is never answered, not even a malformed one, so two peers cannot
trade errors for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from sayagain.errors import InvalidParams, InvalidRequest, ParseFault, SayagainError, to_wire
from sayagain.protocol.codec import dumps, dumps_fast, loads
from sayagain.protocol.lines import MAX_LINE, LineSplitter, TooLong

__all__ = [
    "MALFORMED",
    "MAX_BATCH",
    "Batch",
    "BatchReply",
    "Decoder",
    "Incoming",
    "Invalid",
    "Message",
    "Notification",
    "PendingRequests",
    "Request",
    "RequestId",
    "Response",
    "encode_batch",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
]

# One line of `[1,1,1,…]` would otherwise be answered by 16 million errors, a hundred times its size. Ten times
# go-ethereum's default limit of 1000 entries.
MAX_BATCH: Final = 10_000
"""Most entries of a batch; a longer one is refused as a whole."""

MALFORMED: Final = "malformed_answer"
"""``data.reason`` of the error that stands for an answer which is none: what became of the request is not known."""

RequestId: TypeAlias = str | int
"""Never ``null``, a boolean or a float (RPC-2)."""

_BOM: Final = b"\xef\xbb\xbf"
_SAID: Final = 200
"""Characters of a malformed error that are passed on."""


@dataclass(frozen=True, slots=True)
class Request:
    """Wants exactly one answer with the same id. Absent and ``null`` params are ``{}`` (RPC-6)."""

    id: RequestId
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    """Wants no answer, whatever becomes of it."""

    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer to a request of ours: ``error`` is a wire error object, or ``None`` and then ``result`` counts.

    ``id`` is ``None`` when the peer could not read the request, or when its id is none that we could have sent.
    """

    id: RequestId | None
    result: Any = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Invalid:
    """What is no valid message; ``error`` is the answer, with ``id`` (``None`` is ``null``).

    ``answered`` is false for a notification with unusable params: notifications get no answer (JSON-RPC 2.0, 4.1).
    ``stray``: nothing in it suggests that it was meant as a message. A dependency of the peer's has printed it, and no
    message is lost.
    """

    error: SayagainError
    id: RequestId | None = None
    answered: bool = True
    stray: bool = False


Message: TypeAlias = Request | Notification | Response | Invalid


@dataclass(frozen=True, slots=True)
class Batch:
    """The entries of a batch array, in order; at least one. :class:`BatchReply` collects the answers."""

    items: tuple[Message, ...]


Incoming: TypeAlias = Message | Batch


class Decoder:
    """Turns what a peer sends into events; raises nothing, in time linear in the bytes."""

    __slots__ = ("_first", "_lines")

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._lines = LineSplitter(max_line)
        self._first = True

    def feed(self, data: bytes) -> list[Incoming]:
        """The events that ``data`` completes, in order."""
        return self._events(self._lines.feed(data))

    def eof(self) -> list[Incoming]:
        """The event of a last line without newline, if any: a whole message counts, a torn one is :class:`Invalid`."""
        return self._events(self._lines.eof())

    def _events(self, lines: Sequence[bytes | TooLong]) -> list[Incoming]:
        events: list[Incoming] = []
        for line in lines:
            if isinstance(line, TooLong):
                reason = f"line longer than {line.limit} bytes ({line.seen} seen); skipped to its end"
                events.append(Invalid(ParseFault(reason), _id_in(line.head)))
            elif self._first and line.startswith(_BOM):
                if line != _BOM:
                    events.append(_decode(line[len(_BOM) :]))
            else:
                events.append(_decode(line))
            self._first = False
        return events


# Every JSON-RPC library that is known to us writes the version and the id first, in one of these orders.
_LEADING_ID: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"method"\s*:\s*"[^"\\]*"\s*,\s*)?'
    rb'"id"\s*:\s*(-?\d{1,64}|"(?:[^"\\]|\\.)*")\s*[,}]'
)


def _id_in(head: bytes) -> RequestId | None:
    """The id of a request of which only the beginning is there, so that its sender does not wait for ever."""
    match = _LEADING_ID.match(head)
    if match is None:
        return None
    try:
        return _request_id(loads(match[1]))
    except ValueError:
        return None


_NAMES: Final = (b'"jsonrpc"', b'"method"', b'"params"')


def _decode(line: bytes) -> Incoming:
    try:
        value = loads(line)
    except ValueError as error:
        # Of a message in two pieces one has such a name, and so has one with something before or after it.
        return Invalid(ParseFault(str(error)), stray=not any(name in line for name in _NAMES))
    if not isinstance(value, list):
        return _message(value)
    entries = cast("list[object]", value)
    if not entries:
        return Invalid(InvalidRequest("empty batch"), stray=True)
    if len(entries) > MAX_BATCH:
        return Invalid(InvalidRequest(f"batch of {len(entries)} entries; at most {MAX_BATCH} are taken"))
    return Batch(tuple(map(_message, entries)))


def _message(value: object) -> Message:
    if not isinstance(value, dict):
        return Invalid(InvalidRequest("a message must be an object"), stray=True)
    message = cast("dict[str, Any]", value)
    if "method" not in message and ("result" in message or "error" in message):
        return _response(message)
    request_id = _request_id(message.get("id"))
    if message.get("jsonrpc") != "2.0":
        stray = "jsonrpc" not in message and not ("method" in message and "params" in message)
        return Invalid(InvalidRequest('jsonrpc must be "2.0"'), request_id, stray=stray)
    if "id" in message and request_id is None:
        return Invalid(InvalidRequest("id must be a string or an integer"))
    method = message.get("method")
    if not isinstance(method, str):
        return Invalid(InvalidRequest("method must be a string"), request_id)
    params = message.get("params")
    if params is None:
        params = {}
    elif isinstance(params, list):
        # By-position params are valid JSON-RPC, so the request is; but no ACP method takes them.
        return Invalid(InvalidParams("", "must be an object"), request_id, answered=request_id is not None)
    elif not isinstance(params, dict):
        return Invalid(InvalidRequest("params must be an object"), request_id)
    named = cast("dict[str, Any]", params)
    return Notification(method, named) if request_id is None else Request(request_id, method, named)


def _response(message: Mapping[str, Any]) -> Response:
    """Lenient, because refusing a malformed answer would leave the request that it answers open for ever.

    But garbage is no refusal: what is neither a result nor an error object (JSON-RPC 2.0, 5 and 5.1), or is both,
    becomes an error that says so (:data:`MALFORMED`).
    """
    request_id = _request_id(message.get("id"))
    result, error = message.get("result"), message.get("error")
    if error is None and "result" in message:
        return Response(request_id, result)
    if result is None and isinstance(error, dict) and _is_error(cast("dict[str, Any]", error)):
        return Response(request_id, error=cast("dict[str, Any]", error))
    said: object = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
    text = "The peer sent a malformed answer" + (f": {said[:_SAID]}" if isinstance(said, str) and said else "")
    return Response(request_id, error={"code": SayagainError.code, "message": text, "data": {"reason": MALFORMED}})


def _is_error(error: Mapping[str, Any]) -> bool:
    code = error.get("code")
    # ACP's codes are of 32 bits, and a boolean is an int to isinstance.
    whole = isinstance(code, int) and not isinstance(code, bool) and -(1 << 31) <= code < 1 << 31
    return whole and isinstance(error.get("message"), str)


def _request_id(value: object) -> RequestId | None:
    # bool is an int to isinstance, and no id.
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def encode_result(request_id: RequestId, result: Any) -> bytes:
    """The line that answers a request. Raises like :func:`~sayagain.protocol.codec.dumps`, as all encoders do."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (dumps(request_id), dumps(result))


def encode_error(request_id: RequestId | None, error: Mapping[str, Any]) -> bytes:
    """The line that refuses a request; ``error`` is a wire error object, as of :func:`~sayagain.errors.to_wire`."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (dumps(request_id), dumps(error))


def encode_request(request_id: RequestId, method: str, params: Mapping[str, Any]) -> bytes:
    """The line of a request of ours."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}\n' % (dumps(request_id), dumps(method), dumps(params))


def encode_notification(method: str, params: Mapping[str, Any]) -> bytes:
    """The line of a notification: the hot path of a turn and of a replay."""
    head = _HEADS.get(method)
    if head is None:
        head = b'{"jsonrpc":"2.0","method":%b,"params":' % dumps(method)
    return head + dumps_fast(params) + b"}\n"


_HEADS: Final = {"session/update": b'{"jsonrpc":"2.0","method":"session/update","params":'}


def encode_batch(lines: Iterable[bytes]) -> bytes:
    """One line that holds the messages of ``lines``, each encoded already; there must be one at least."""
    return b"[%b]\n" % b",".join(line.removesuffix(b"\n") for line in lines)


class BatchReply:
    """Collects the answers to one batch, in the order of its entries (RPC-8).

    Entries are named by their position, since a faulty peer may use one id twice. Invalid entries are answered from
    the start; notifications and responses never are.
    """

    __slots__ = ("_answers", "_waiting")

    def __init__(self, batch: Batch) -> None:
        self._answers: dict[int, bytes] = {}
        self._waiting: set[int] = set()
        for position, item in enumerate(batch.items):
            if isinstance(item, Request):
                self._waiting.add(position)
            elif isinstance(item, Invalid) and item.answered:
                self._answers[position] = encode_error(item.id, to_wire(item.error))

    @property
    def complete(self) -> bool:
        """Every request has its answer: :meth:`encode` gives the whole reply."""
        return not self._waiting

    def add(self, position: int, line: bytes) -> None:
        """Keep the encoded answer to the request at ``position``; :class:`KeyError` when it waits for none."""
        self._waiting.remove(position)
        self._answers[position] = line

    def encode(self) -> bytes | None:
        """The reply line with the answers so far; ``None`` when there is none, which is then the right reply."""
        if not self._answers:
            return None
        return encode_batch(self._answers[position] for position in sorted(self._answers))


_Token = TypeVar("_Token")


class PendingRequests(Generic[_Token]):
    """Our own requests that wait for an answer, each with a token of the caller's.

    Ids are integers from 1, never used twice on a connection (RPC-2), so that a late answer meets nothing (CAN-6).
    """

    __slots__ = ("_last", "_tokens")

    def __init__(self) -> None:
        self._last = 0
        self._tokens: dict[RequestId, _Token] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, token: _Token) -> int:
        """The id for a new request."""
        self._last += 1
        self._tokens[self._last] = token
        return self._last

    def resolve(self, request_id: RequestId | None) -> _Token | None:
        """The token of the request that a response answers, once; ``None`` for one that waits for no answer."""
        return None if request_id is None else self._tokens.pop(request_id, None)

    def drain(self) -> list[_Token]:
        """The tokens of all that wait, oldest first: the connection is gone, no answer comes any more."""
        tokens = list(self._tokens.values())
        self._tokens.clear()
        return tokens
