"""The promises of the seam (:mod:`sayagain.runtime.seam`), as checks that any runtime can be held to.

For authors of adapters. Write a :class:`Driver` for your runtime: it makes the runtime over a store of its own, plays
the model, and can crash the runtime's process. Then, with pytest and anyio's plugin::

    from sayagain.testing.contract import CHECKS, Check

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_contract(check: Check, driver: MyDriver) -> None:
        await check(driver)

Each check takes a driver with an empty store and raises :class:`BrokenPromise` with the promise in words. They are
plain coroutines over anyio and need no test framework. Leave those out by name that your runtime cannot have, such as
``a_child_is_announced_first`` where there are no subagents; say why beside it.
"""

from typing import Final

from sayagain.testing.contract.harness import Behaviour, BrokenPromise, Check, Driver
from sayagain.testing.contract.stored import STORED
from sayagain.testing.contract.turns import TURNS

__all__ = ["CHECKS", "Behaviour", "BrokenPromise", "Check", "Driver"]

CHECKS: Final[tuple[Check, ...]] = (*TURNS, *STORED)
"""All checks; their names say what they promise."""
