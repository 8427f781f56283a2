"""Claude Code's frames and stored rows as ACP v2 updates: pure functions, no I/O.

``live`` takes stdout frames, ``stored`` takes rows. Both build every update from the same parts (``blocks``,
``messages``, ``tools``, ``results``, ``diffs``, ``plans``, ``compactions``, ``subagents``, ``harness``), so that live
and replay cannot drift apart; ``tests/recorded`` compares them entity by entity.
"""
