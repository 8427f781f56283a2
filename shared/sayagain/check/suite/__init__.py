"""The checks, by area."""

from __future__ import annotations

from typing import Final

from sayagain.check.model import Check
from sayagain.check.suite.keys import KEYS

__all__ = ["CHECKS"]

CHECKS: Final[tuple[Check, ...]] = (*KEYS.checks,)
"""All of them, in the order of a report."""
