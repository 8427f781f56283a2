"""What Codex reports and stores, as ACP v2 updates. Pure: no I/O, no process, no clock.

``items`` is the one place that knows what an item looks like to a client; ``live`` feeds it notifications and
``sayagain_codex.history`` stored items, so that live and replay cannot drift apart.
"""
