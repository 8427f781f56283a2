"""What ``NotebookEdit`` will make of a notebook, so that its patch can be shown before it is approved."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from sayagain_claude.translate.blocks import Json, as_text

__all__ = ["edited_notebook"]

_NUMBERED: Final = re.compile(r"cell-(\d+)")


def edited_notebook(before: str, input_: Json) -> str | None:
    """The notebook's text after the edit, as the CLI writes it (measured: indented by one blank, no last newline).

    ``None`` where that is not known beforehand: a new cell gets a random id, and what does not fit gets an error.
    """
    try:
        notebook: Any = json.loads(before)
        cells = cast("list[dict[str, Any]]", notebook["cells"])
        index = _index(cells, as_text(input_.get("cell_id")))
        mode, source = input_.get("edit_mode", "replace"), input_.get("new_source")
        if mode == "delete":
            del cells[index]
        elif mode == "replace" and isinstance(source, str):
            cell = cells[index]
            cell["source"] = as_text(source)
            if cell.get("cell_type") == "code":
                cell |= {"execution_count": None, "outputs": []}
            kind = input_.get("cell_type")
            if isinstance(kind, str) and kind != cell.get("cell_type"):
                return None
        else:
            return None
        return json.dumps(notebook, indent=1, ensure_ascii=False)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _index(cells: list[dict[str, Any]], cell_id: str) -> int:
    for index, cell in enumerate(cells):
        if cell.get("id") == cell_id:
            return index
    # Cells of older notebooks have no ids; the model is told their number.
    number = _NUMBERED.fullmatch(cell_id)
    if number is None or int(number[1]) >= len(cells):
        raise LookupError(cell_id)
    return int(number[1])
