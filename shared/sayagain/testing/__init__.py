"""Stand-ins and recordings for tests of agents and adapters.

``messages_api`` is a scripted Messages API on loopback, ``recorder`` and ``scrubber`` make fixtures from the real
runtime.
"""

__all__: list[str] = []
