"""Why a process ended early: of all that it wrote, the line that says so."""

from __future__ import annotations

import pytest

from sayagain_codex.complaint import complaint


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        ("", ""),
        ("WARNING: proceeding, even though a folder is missing\n", ""),
        ("\x1b[2m2026-01-02T03:04:05.6Z\x1b[0m \x1b[33m WARN\x1b[0m codex_core: slow\n", ""),
        ("WARNING: a\nError: the folder is none\n", "Error: the folder is none"),
        ("Error: first\n\nCaused by:\n    second\nwarning: x\n", "Error: first"),
        ("Error: it failed\n\nStack backtrace:\n   0: error_of_the_trace\n", "Error: it failed"),
        (
            "error: unexpected argument '--x' found\n\nUsage: codex [OPTIONS]\n\nFor more information, try '--help'.\n",
            "error: unexpected argument '--x' found",
        ),
        (
            "thread 'main' panicked at src/a.rs:1:2:\nno room\nnote: run with `RUST_BACKTRACE=1`\n",
            "thread 'main' panicked at src/a.rs:1:2: no room",
        ),
        ("cat: unrecognized option '--x'\nTry 'cat --help' for more information.\n", "cat: unrecognized option '--x'"),
        ("sh: 1: cannot open it\nnote: x\n", "sh: 1: cannot open it"),
        ("Error: unknown variant `sk\n-1`, expected `a`\n", "Error: unknown variant `…`, expected `a`"),
        (
            'Error: thread \'a\' failed: Os { code: 13, message: "Permission denied" }, a: "sk-1"\n',
            'Error: thread \'a\' failed: Os { code: 13, message: "Permission denied" }, a: "…"',
        ),
    ],
)
def test_the_reason_is_the_error_and_no_remark(stderr: str, told: str) -> None:
    assert complaint(stderr) == told
