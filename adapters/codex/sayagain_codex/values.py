"""What Codex says of a configuration, without the values in it: they may be tokens, and clients keep error texts.

Codex quotes what it cannot use, as the libraries do with which it reads it (measured, codex 0.163)::

    config.toml:5:16: invalid type: string "Bearer sk-...", expected a map
    config.toml:1:19: unknown variant `sk-...`, expected one of `untrusted`, `never`
    error sending request for url (https://host/path/sk-...?key=sk-...)

What helps to mend it stays: files and places in them, names of keys, what was expected.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["without_addresses", "without_values"]

CUT: Final = "…"
"""What stands for a value."""

_TEXT: Final = r'"(?:[^"\\]|\\.)*"'
"""A text in Rust's notation."""

_VARIANT: Final = re.compile(r"(unknown variant `).*?(?:`(?=, expected|, there are no variants)|\Z)", re.DOTALL)
_UNEXPECTED: Final = re.compile(rf"(invalid (?:type|value): [a-z ]+)(?:{_TEXT}|`[^`]*`)", re.DOTALL)
"""How serde, which reads all of it, names a value."""

_URL: Final = re.compile(r"\burl \((\w+://)(?:[^/?#)\s]*@)?([^/?#)\s]+)\S*\)")
"""How an HTTP client names what it asked: those of MCP servers have tokens in their paths too."""

_SOURCE: Final = re.compile(r"^([ \t]*\d+ \| ).*", re.MULTILINE)
"""A line of the file itself, as a parser shows where it stopped."""

_QUOTED: Final = re.compile(
    rf"""[`']"+[`']              # punctuation that a parser expected
    |(?P<words>\b(?:message|error):\s){_TEXT}  # an error inside of another
    |{_TEXT}|".*\Z              # anything else, and what was cut off""",
    re.DOTALL | re.VERBOSE,
)

_FILE: Final = re.compile(r'"(?:[/~]|[A-Za-z]:\\)')
"""The begin of a text that names a file."""


def without_values(text: str) -> str:
    """``text`` with an ellipsis in place of each value that it quotes."""
    text = _VARIANT.sub(rf"\1{CUT}`", text)
    text = _UNEXPECTED.sub(rf'\1"{CUT}"', text)
    text = without_addresses(text)
    text = _SOURCE.sub(rf"\1{CUT}", text)
    return _QUOTED.sub(_unquoted, text)


def without_addresses(text: str) -> str:
    """``text`` with the host alone of each URL that was asked: for words of servers, who quote for other reasons."""
    return _URL.sub(rf"url (\1\2/{CUT})", text)


def _unquoted(match: re.Match[str]) -> str:
    whole, words = match[0], match["words"]
    if words is not None:
        inside = without_values(whole[len(words) + 1 : -1].replace('\\"', '"'))
        return words + '"' + inside.replace('"', '\\"') + '"'
    return whole if whole[0] in "`'" or _FILE.match(whole) else f'"{CUT}"'
