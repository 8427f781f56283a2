"""File changes that a tool call made or wants to make."""

# ruff: noqa: N815 - the wire has camelCase names

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

from sayagain.protocol.v2.markers import Known, Open
from sayagain.protocol.v2.scalars import AbsolutePath, MediaType, Object

__all__ = [
    "Diff",
    "DiffChange",
    "DiffFileType",
    "DiffPatch",
    "DiffPatchFormat",
    "DiffPathChange",
    "DiffPathPairChange",
    "UnknownDiffChange",
]

DiffFileType: TypeAlias = Annotated[str, Known("text", "binary", "directory", "symlink")]
DiffPatchFormat: TypeAlias = Annotated[str, Known("git_patch")]


class DiffPatch(Object):
    """The changes as text; ``git_patch`` has absolute paths and no ``a/`` and ``b/`` (TC-3)."""

    format: DiffPatchFormat
    text: str


class _DiffEntry(Object):
    fileType: NotRequired[DiffFileType | None]
    mimeType: NotRequired[MediaType | None]


class DiffPathChange(_DiffEntry):
    """A file that comes, goes or gets other content."""

    operation: Literal["add", "delete", "modify"]
    path: AbsolutePath


class DiffPathPairChange(_DiffEntry):
    """A file that gets another path, or a second one."""

    operation: Literal["move", "copy"]
    oldPath: AbsolutePath
    path: AbsolutePath


class UnknownDiffChange(_DiffEntry):
    """An operation that this version does not know."""

    operation: str


DiffChange: TypeAlias = Annotated[DiffPathChange | DiffPathPairChange | UnknownDiffChange, Open("operation")]


class Diff(Object):
    """``changes`` is what counts; ``patch``, if there, agrees with it (TC-3)."""

    type: Literal["diff"]
    changes: list[DiffChange]
    patch: NotRequired[DiffPatch | None]
