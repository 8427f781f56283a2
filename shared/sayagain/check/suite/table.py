"""How the modules of the suite list their checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sayagain.check.model import Area, Check, Feature, Look, Source, Tier

__all__ = ["Table"]


@dataclass
class Table:
    """The checks of one area and source, in the order of their definition."""

    area: Area
    source: Source
    checks: list[Check] = field(default_factory=list[Check])

    def must(
        self, check_id: str, section: str, rule: str, *needs: Feature, source: Source | None = None, over: bool = False
    ) -> Callable[[Look], Look]:
        """List the decorated function as the check of a rule that an agent must keep."""
        return self._add(Tier.MUST, check_id, section, rule, needs, source, over)

    def should(
        self, check_id: str, section: str, rule: str, *needs: Feature, source: Source | None = None, over: bool = False
    ) -> Callable[[Look], Look]:
        """List the decorated function as the check of a rule that an agent should keep."""
        return self._add(Tier.SHOULD, check_id, section, rule, needs, source, over)

    def _add(
        self,
        tier: Tier,
        check_id: str,
        section: str,
        rule: str,
        needs: tuple[Feature, ...],
        source: Source | None,
        over: bool,
    ) -> Callable[[Look], Look]:
        def add(look: Look) -> Look:
            check = Check(
                check_id, self.area, tier, rule, source or self.source, section, look, frozenset(needs), over_all=over
            )
            self.checks.append(check)
            return look

        return add
