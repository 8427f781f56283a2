"""Being the one process that stores messages in a session: the lease, and orphans of an adapter that died (section 5).

A process of ours lives under a guard that holds the lease until it is gone, so a free lease means that nothing of ours
is left. Only where no guard can do that (no ``/proc``) could a process outlive its guard; it is found through the CLI's
own registry of live sessions and ended when it bears our mark and its adapter is gone. A process that the user runs by
hand never stores our ids: it is left alone.
"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sayagain.processes import lease as leases
from sayagain.processes.lease import Lease
from sayagain.processes.proc import alive, environ_value, send_signal
from sayagain_claude.command import ADAPTER_VARIABLE

__all__ = ["end_orphans", "take"]

logger = logging.getLogger(__name__)


async def take(session_id: str, config: Path, env: Mapping[str, str], patience: float) -> Lease:
    """The session's lease; raises :class:`~sayagain.errors.SessionInUse` while another live adapter has it."""
    lease = await leases.acquire("claude", session_id, patience=patience, env=env)
    end_orphans(session_id, config)
    return lease


def end_orphans(session_id: str, config: Path) -> None:
    """End processes of ours on this session whose adapter is gone. Call as the lease's owner."""
    for entry in _registered(config):
        pid, start = entry.get("pid"), entry.get("procStart")
        if entry.get("sessionId") != session_id or not isinstance(pid, int):
            continue
        start_time = int(start) if isinstance(start, int | str) and str(start).isdigit() else None
        if start_time is None or not alive(pid, start_time):
            continue
        adapter, _, adapter_start = (environ_value(pid, ADAPTER_VARIABLE) or "").partition(":")
        if adapter.isdigit() and not alive(int(adapter), int(adapter_start) if adapter_start.isdigit() else None):
            logger.warning("ending process %d, which outlived its adapter", pid)
            send_signal(pid, start_time, signal.SIGKILL)


def _registered(config: Path) -> list[Mapping[str, Any]]:
    """The CLI's registry: one small file for each live process; left behind by one that was killed (measured)."""
    entries: list[Mapping[str, Any]] = []
    for path in sorted((config / "sessions").glob("*.json")):
        try:
            entry = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(entry, dict):
            entries.append(entry)  # pyright: ignore[reportUnknownArgumentType]
    return entries
