"""Which id an item has for clients: its own, or one that bears its turn.

Codex stores an item under its turn and its id (measured, codex 0.163), and the id is mostly the model service's: of a
message or a thought its item's, of a call the call's. OpenAI's are random. Other services count (``msg_1``,
``call_0``), many of them from the start with each request, or make short random ones that come again sooner or later.
For a client an id is one entity of the session, so such items need the id of their turn too.

Whether an id was used before could be known from the whole history alone, which nobody reads for a live item. So the
form decides, and nothing is remembered: an id that is random enough never comes again, and stays as it is; all others
bear their turn, in the first one too. It is the same in every process, live and in replay, and in forks, which keep the
turns' ids (measured).

Within one turn Codex keeps the last item of an id, in the place of the first (measured). So do clients.
"""

from __future__ import annotations

import re
from string import ascii_letters, digits
from typing import Final

from sayagain.protocol.loose import Json, as_mapping, as_text

__all__ = ["bears_turn", "in_turn", "item_id_for", "with_item_ids"]

_RANDOM: Final = 16
"""Letters and digits in a row that are no counter and no word: 64 bits, if they are hexadecimal. OpenAI's ids have 24
and more, as have those of vLLM, llama.cpp, LiteLLM and Anthropic; Ollama's have 6 or 8, Mistral's 9, Groq's 4."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}[^0-9]*\Z", re.IGNORECASE)
"""As in Codex's own ids: ``exec-<uuid>``, ``<uuid>-plan``. What counts behind it may begin anew with each request."""

_OF_THREAD: Final = re.compile(r"item-[0-9]+")
"""How Codex numbers the items of a legacy thread, from its first one on, each time that it lists them (measured)."""


def item_id_for(item_id: str, turn_id: str) -> str:
    """The id for clients of what Codex calls ``item_id`` in the turn; without a turn it is left as it is."""
    if not item_id or not turn_id or _is_random(item_id) or _OF_THREAD.fullmatch(item_id):
        return item_id
    return f"{item_id}.{turn_id}"


def bears_turn(item_id: str, turn_id: str) -> bool:
    """Whether the id for clients is one of that turn: another item of the turn may have it too."""
    return bool(turn_id) and item_id.endswith(f".{turn_id}")


def in_turn(item: Json, turn_id: str) -> Json:
    """The item with its id for clients. Prompts keep theirs, which are those of their clients, or Codex's own."""
    given = as_text(item.get("id"))
    item_id = given if item.get("type") == "userMessage" else item_id_for(given, turn_id)
    return item if item_id == given else {**item, "id": item_id}


def with_item_ids(params: Json) -> Json:
    """The params of a notification or request about an item, with its id for clients."""
    turn_id = as_text(params.get("turnId"))
    if "item" in params:
        item = as_mapping(params["item"])
        named = in_turn(item, turn_id)
        return params if named is item else {**params, "item": named}
    given = as_text(params.get("itemId"))
    item_id = item_id_for(given, turn_id)
    return params if item_id == given else {**params, "itemId": item_id}


def _is_random(item_id: str) -> bool:
    """Whether it ends with what is random: digits, small letters or capitals alone may be a number or a name."""
    end = item_id[len(item_id.rstrip(ascii_letters + digits)) :]
    if len(end) >= _RANDOM and not (end.isdigit() or (end.isalpha() and (end.islower() or end.isupper()))):
        return True
    return _UUID.search(item_id) is not None
