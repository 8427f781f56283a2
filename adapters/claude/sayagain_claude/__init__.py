"""The Claude Code runtime."""

__all__: list[str] = []
