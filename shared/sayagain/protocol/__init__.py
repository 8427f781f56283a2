"""The wire, without I/O: JSON-RPC framing and envelopes, and the ACP v2 types."""

__all__: list[str] = []
