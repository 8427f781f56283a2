"""Claude Code's stored sessions, raw: where they are, their rows, their ids, their list, their copies.

Synchronous and blocking; callers run it in worker threads. Nothing here goes through the CLI or its SDK, which drop
rows and answer a read error with an empty list (measured).
"""

__all__: list[str] = []
