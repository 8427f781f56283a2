"""``sayagain demo``: a crash that loses nothing, on the real runtime. No account, no network."""

from __future__ import annotations

import anyio

from sayagain.demo.story import tell

__all__ = ["run_demo"]


def run_demo(runtime: str) -> int:
    """Show the story on standard output; 1 when the counts at its end are not what was promised."""
    return 0 if anyio.run(tell, runtime) else 1
