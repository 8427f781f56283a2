"""Processes that die with their adapter, and the lease that makes one process at a time own a session.

Both close the same hole (design section 5, "orphan"): a runtime that outlives its adapter can store a message a moment
after the next adapter looked for it. :func:`~sayagain.processes.spawn.spawn` starts a runtime under a guard, which ends
everything the runtime started when the adapter goes; :func:`~sayagain.processes.lease.acquire` takes the session's
lock, which the guard holds as well until nothing is left.

Nothing is imported here: the modules cost start-up time only where they are used.
"""

from __future__ import annotations

__all__: list[str] = []
