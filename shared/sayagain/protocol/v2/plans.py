"""Plans that the agent follows. Files, Markdown and removal are unstable."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from typing_extensions import TypedDict

from sayagain.protocol.v2.markers import Known, Open
from sayagain.protocol.v2.scalars import Object, PlanId, Uri

__all__ = [
    "PlanEntry",
    "PlanEntryPriority",
    "PlanEntryStatus",
    "PlanFile",
    "PlanItems",
    "PlanMarkdown",
    "PlanUpdateContent",
    "UnknownPlan",
]

PlanEntryPriority: TypeAlias = Annotated[str, Known("high", "medium", "low")]
PlanEntryStatus: TypeAlias = Annotated[str, Known("pending", "in_progress", "completed", "cancelled")]


class PlanEntry(Object):
    """One step."""

    content: str
    priority: PlanEntryPriority
    status: PlanEntryStatus


class PlanItems(Object):
    """A plan as steps: all of them, each time (UPD-10)."""

    type: Literal["items"]
    planId: PlanId
    entries: list[PlanEntry]


class PlanFile(Object):
    """A plan in a file."""

    type: Literal["file"]
    planId: PlanId
    uri: Uri


class PlanMarkdown(Object):
    """A plan as text."""

    type: Literal["markdown"]
    planId: PlanId
    content: str


class UnknownPlan(TypedDict):
    """A kind of plan that this version does not know."""

    type: str
    planId: PlanId


PlanUpdateContent: TypeAlias = Annotated[PlanItems | PlanFile | PlanMarkdown | UnknownPlan, Open("type")]
