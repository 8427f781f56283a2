"""The checks, by area."""

from __future__ import annotations

from typing import Final

from sayagain.check.model import Check
from sayagain.check.suite.base import BASE
from sayagain.check.suite.cancelling import CANCELLING
from sayagain.check.suite.children import CHILDREN
from sayagain.check.suite.key_values import KEY_VALUES
from sayagain.check.suite.keys import KEYS
from sayagain.check.suite.markers import MARKERS
from sayagain.check.suite.privacy import PRIVACY
from sayagain.check.suite.replay import REPLAY

__all__ = ["CHECKS"]

CHECKS: Final[tuple[Check, ...]] = tuple(
    check
    for table in (BASE, KEYS, PRIVACY, KEY_VALUES, CANCELLING, REPLAY, MARKERS, CHILDREN)
    for check in table.checks
)
"""All of them, in the order of a report."""
