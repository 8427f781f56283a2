"""The report as JSON, for programs."""

from __future__ import annotations

from typing import Any, Final

from sayagain.check.model import Status, Tier
from sayagain.check.runner import Report
from sayagain.check.trace import Event

__all__ = ["FORMAT", "document"]

FORMAT: Final = 1
"""Of this document; another number means that fields went or changed."""


def document(report: Report, command: str, version: str) -> dict[str, Any]:
    """``checks`` has every check; one that failed has ``lines`` that show it, one line of the wire each.

    Texts are as the agent wrote them: whoever shows them has to make them fit for that. Those that were not run count
    as skipped too.
    """
    return {
        "format": FORMAT,
        "tool": {"name": "sayagain check", "version": version},
        "agent": {**report.agent, "command": command},
        "profile": report.profile,
        "trouble": report.trouble or None,
        "troubleLines": [_line(event) for event in report.lines],
        "seconds": round(report.seconds, 3),
        "summary": {
            "passed": report.count(Status.PASS),
            "failed": report.count(Status.FAIL, Tier.MUST),
            "warnings": report.count(Status.FAIL, Tier.SHOULD),
            "skipped": report.count(Status.SKIPPED),
            "notRun": report.not_run,
        },
        "checks": [
            {
                "id": result.check.id,
                "area": result.check.area.value,
                "tier": result.check.tier.value,
                "rule": result.check.rule,
                "source": {"document": result.check.source.value, "section": result.check.section},
                "needs": sorted(feature.name.lower() for feature in result.check.needs),
                "status": result.status.value,
                "notRun": result.not_run,
                "reason": result.reason or None,
                "seconds": round(result.seconds, 3),
                "lines": [_line(event) for event in result.lines],
            }
            for result in report.results
        ],
    }


def _line(event: Event) -> dict[str, Any]:
    return {"index": event.index, "connection": event.connection, "from": event.side, "text": event.text}
