"""Every error that a client can see, and the one place where it becomes a wire error.

The tree says whose fault it is; the JSON-RPC code follows from the class (design section 6, rules section 15)::

    SayagainError
    ├── ClientFault                 the peer broke a rule, or asked for what is not there
    │   ├── ParseFault              -32700
    │   ├── InvalidRequest          -32600
    │   ├── MethodNotFound          -32601
    │   ├── InvalidParams           -32602   data.field names what is wrong
    │   ├── SessionNotFound         -32002   data.sessionId
    │   ├── UnsupportedVersion      -32022   data.requested, data.supported
    │   └── RequestCancelled        -32800   withdrawn by its sender, or with the session's work
    └── RuntimeFault                the runtime could not do it; nothing was inserted
        ├── AuthRequired            -32000   found before anything is stored
        ├── PromptRefused           -32603   a hook or the runtime itself turned the prompt away
        ├── RuntimeDied             -32603   the process ended before the message was stored
        ├── RuntimeMissing          -32603   no usable executable
        ├── RuntimeTimeout          -32603   it does not answer any more
        ├── SessionInUse            -32603   another live process owns the session
        └── HistoryUnreadable       -32603   the stored session cannot be read

Anything else is our own fault: ``-32603`` without details, and a traceback in the log. Facts are attributes; the text
is made in ``__str__``. No error carries an idempotency key or prompt text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

__all__ = [
    "AuthRequired",
    "ClientFault",
    "HistoryUnreadable",
    "InvalidParams",
    "InvalidRequest",
    "MethodNotFound",
    "ParseFault",
    "PromptRefused",
    "RequestCancelled",
    "RuntimeDied",
    "RuntimeFault",
    "RuntimeMissing",
    "RuntimeTimeout",
    "SayagainError",
    "SessionInUse",
    "SessionNotFound",
    "UnsupportedVersion",
    "to_wire",
]


class SayagainError(Exception):
    """Base of all errors that have a wire form."""

    code: ClassVar[int] = -32603

    @property
    def data(self) -> Mapping[str, Any] | None:
        """What the client can act on; ``None`` leaves ``error.data`` out."""
        return None


class ClientFault(SayagainError):
    """The request cannot be served as it is."""


class ParseFault(ClientFault):
    """A line that is not JSON, not UTF-8, or longer than the limit."""

    code: ClassVar[int] = -32700

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"Parse error: {self.reason}"


class InvalidRequest(ClientFault):
    """JSON that is no valid JSON-RPC message, or a message at a wrong moment."""

    code: ClassVar[int] = -32600

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"Invalid request: {self.reason}"


class MethodNotFound(ClientFault):
    """A method that this agent does not serve."""

    code: ClassVar[int] = -32601

    def __init__(self, method: str) -> None:
        super().__init__(method)
        self.method = method

    @property
    def data(self) -> Mapping[str, Any]:
        return {"method": self.method[:200]}

    def __str__(self) -> str:
        return f"Method not found: {self.method[:200]}"


class InvalidParams(ClientFault):
    """A field of ``params`` that is missing, malformed or not supported.

    ``field`` is a dotted path from ``params`` (``prompt.0.type``), or ``""`` for params as a whole. ``reason`` never
    quotes the value: it may be a key or a prompt.
    """

    code: ClassVar[int] = -32602

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    @property
    def data(self) -> Mapping[str, Any]:
        return {"field": self.field, "reason": self.reason}

    def __str__(self) -> str:
        return f"Invalid params: {self.field}: {self.reason}" if self.field else f"Invalid params: {self.reason}"


class SessionNotFound(ClientFault):
    """No such session, or it is not active on this connection (RES-4, RES-14, PRM-4)."""

    code: ClassVar[int] = -32002

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id

    @property
    def data(self) -> Mapping[str, Any]:
        return {"sessionId": self.session_id[:200]}

    def __str__(self) -> str:
        return f"Session not found: {self.session_id[:200]}"


class UnsupportedVersion(ClientFault):
    """No protocol version in common (INI-1)."""

    code: ClassVar[int] = -32022

    def __init__(self, requested: int, supported: Sequence[int]) -> None:
        super().__init__(requested, supported)
        self.requested = requested
        self.supported = tuple(supported)

    @property
    def data(self) -> Mapping[str, Any]:
        return {"requested": self.requested, "supported": list(self.supported)}

    def __str__(self) -> str:
        versions = ", ".join(map(str, self.supported))
        return f"Unsupported protocol version {self.requested}; supported: {versions}"


class RequestCancelled(ClientFault):
    """The request was cancelled or its prompt withdrawn; nothing was inserted (CAN-3, CAN-4)."""

    code: ClassVar[int] = -32800

    def __init__(self, reason: str = "withdrawn before it was inserted") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"Request cancelled: {self.reason}"


class RuntimeFault(SayagainError):
    """The runtime could not do what was asked; an idempotency key stays unused.

    ``reason`` on the wire (``data.reason``) is a stable identifier that clients may compare.
    """

    reason: ClassVar[str] = "runtime_fault"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail

    @property
    def data(self) -> Mapping[str, Any]:
        return {"reason": self.reason}

    def __str__(self) -> str:
        return self.detail or "The runtime failed"


class AuthRequired(RuntimeFault):
    """Sign-in is needed; found before a prompt is stored (NEW-7)."""

    code: ClassVar[int] = -32000
    reason: ClassVar[str] = "auth_required"

    def __str__(self) -> str:
        return self.detail or "Authentication required"


class PromptRefused(RuntimeFault):
    """The runtime turned the prompt away without storing it."""

    reason: ClassVar[str] = "prompt_refused"

    def __str__(self) -> str:
        return self.detail or "The runtime refused the prompt"


class RuntimeDied(RuntimeFault):
    """The runtime's process ended before the message was stored. The next prompt starts a new one."""

    reason: ClassVar[str] = "runtime_died"

    def __str__(self) -> str:
        return self.detail or "The runtime ended before the message was stored"


class RuntimeMissing(RuntimeFault):
    """The runtime's executable is missing, not executable, or too old."""

    reason: ClassVar[str] = "runtime_missing"


class RuntimeTimeout(RuntimeFault):
    """The runtime stopped answering and was ended."""

    reason: ClassVar[str] = "runtime_timeout"

    def __str__(self) -> str:
        return self.detail or "The runtime stopped answering"


class SessionInUse(RuntimeFault):
    """Another live process works on this session; a prompt here could be inserted twice (design section 5)."""

    reason: ClassVar[str] = "session_in_use"

    def __str__(self) -> str:
        return self.detail or "Another process works on this session"


class HistoryUnreadable(RuntimeFault):
    """The stored session cannot be read. Never answered as an empty history."""

    reason: ClassVar[str] = "history_unreadable"

    def __str__(self) -> str:
        return self.detail or "The stored session cannot be read"


def to_wire(error: BaseException) -> dict[str, Any]:
    """The JSON-RPC error object for ``error``: ``{code, message, data?}``.

    The only place where an exception becomes a wire error. An exception outside the tree is our own fault: it gives a
    bare ``-32603``, since its text may hold anything.
    """
    if not isinstance(error, SayagainError):
        return {"code": -32603, "message": "Internal error"}
    wire: dict[str, Any] = {"code": error.code, "message": str(error)}
    if error.data is not None:
        wire["data"] = dict(error.data)
    return wire
