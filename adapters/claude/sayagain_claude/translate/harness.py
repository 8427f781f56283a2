"""What Claude Code writes for the model, and must not reach the user; live or in replay.

One table per place where such text appears, each pattern with the fact behind it (measured on 2.1.332 unless marked
**code**, read in the binary). Structured results and row flags are asked first, by the callers: text is matched only
where nothing else tells, so a file or a prompt that merely quotes these words keeps them.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final

__all__ = [
    "DECLINED",
    "DISMISSED",
    "IN_CHAT",
    "NO_RESPONSE",
    "background_task",
    "command_line",
    "command_output",
    "is_launch_note",
    "killed_output",
    "only_reminders",
    "shell_errors",
    "subagent_report",
    "summary_text",
    "tool_text",
    "verdict",
]

DECLINED: Final = "The user declined this tool call."
DISMISSED: Final = "The permission request was dismissed without an answer."
IN_CHAT: Final = "The user will answer in the chat: ask the questions there as text."
"""What we tell the model when a call is not approved; it comes back as the call's result."""

NO_RESPONSE: Final = "No response requested."
"""The filler answer that a resumed CLI writes after an unanswered prompt (model ``<synthetic>``)."""

# Errors that stand for a whole result: nothing of them is output. What they mean for the call:
_VERDICTS: Final = (
    (DECLINED, "cancelled"),
    (DISMISSED, "cancelled"),
    (IN_CHAT, "cancelled"),
    ("The user doesn't want to proceed with this tool use.", "cancelled"),  # refused, or interrupted while it ran
    ("The user doesn't want to take this action right now.", "cancelled"),  # code: refused outside of a prompt
    ("[Request interrupted by user", "cancelled"),  # an interrupt while the call was prepared
    ("[Tool call skipped", "cancelled"),  # code: the turn ended before the call's turn came
    ("[Tool call not completed", "cancelled"),  # code: an approval that nobody gave
    ("[Tool call did not complete", "cancelled"),  # code: the turn ended to deliver another message
    ("[Tool call interrupted", "failed"),  # the process was killed; added by the next resume
    ("[Tool call result not in this copy", "failed"),  # code: a copy of a running session
    ("[Agent call interrupted", "failed"),  # code: the same for a subagent
    ("[Request interrupted: the session ended", "failed"),  # code
    ("[This turn ended before it finished", "failed"),  # code
    ("Permission for this tool use was denied.", "failed"),  # code: denied without asking
)

_REMINDER: Final = r"<system-reminder>(?:(?!<system-reminder>).)*?</system-reminder>"
_TRAILING_REMINDERS: Final = re.compile(rf"(?:\s*{_REMINDER})+\s*\Z", re.DOTALL)
_ONLY_REMINDERS: Final = re.compile(rf"\s*(?:{_REMINDER}\s*)+", re.DOTALL)
_ERROR: Final = re.compile(r"\A\s*<tool_use_error>(.*)</tool_use_error>\s*\Z", re.DOTALL)

_NOTES: Final = (
    # An empty result, for the model, which must not see an empty block.
    re.compile(r"\A\([\w.:-]+ completed with no output\)\Z"),
    # A watcher that goes on beside the conversation.
    re.compile(r"\AMonitor started \(task .*\Z", re.DOTALL),
    # code: a file that the model has read before, and a result that was dropped from its context.
    re.compile(r"\AWasted call . file unchanged since your last Read.*\Z", re.DOTALL),
    re.compile(r"\A\[Old tool result content cleared\]\Z"),
    # The launch of a background subagent: "internal metadata", says the text itself.
    re.compile(r"\AAsync agent launched successfully.*\Z", re.DOTALL),
)

# A command in the background, after what it printed so far; its output goes to a file that only the model is told of.
# Two of the wordings: code.
_BACKGROUND: Final = re.compile(
    r"(?:\A|\n)Command (?:running in background with ID: |was manually backgrounded by user with ID: "
    r"|was moved to the background \(ID: |did not complete within its [^\n]{1,40}moved to the background \(ID: )"
    r"([\w-]+).*\Z",
    re.DOTALL,
)
_LAUNCHED: Final = re.compile(
    r"\AMonitor started \(task ([\w-]+)|\AAsync agent launched.*?\bagentId: ([\w-]+)", re.DOTALL
)

# Behind a command that left the project: its shell did not (measured).
_CWD_RESET: Final = re.compile(r"(?:\A|\n)Shell cwd was reset to [^\n]*\s*\Z")

_KILLED: Final = re.compile(r"\n\n?\[killed\]\s*\Z")

# A large output: the model gets the beginning, and where the rest is.
_PERSISTED: Final = re.compile(
    r"\A<persisted-output>\n.*?\nPreview \([^)\n]*\):\n(.*?)(?:\n\.\.\.)?\n?</persisted-output>\s*\Z", re.DOTALL
)

_TOOLS_USED: Final = re.compile(r"\s*<tools-used-before-summary>[^<]*</tools-used-before-summary>[ \t]*\n?\s*")
_HAND_BACK: Final = "[Subagent hand-back]"
_TRAILER: Final = re.compile(r"\n(?:agentId: [^\n]*\(use SendMessage|<usage>).*\Z", re.DOTALL)

_SUMMARY_HEAD: Final = re.compile(
    rf"\AThis session is being continued from a previous conversation[^\n]*\n+(?:{_REMINDER}\s*)*(?:Summary:\n)?",
    re.DOTALL,
)
_SUMMARY_TAILS: Final = (
    "\n\nIf you need specific details from before compaction",
    "\n\nContinue the conversation from where it left off",
    "\nContinue the conversation from where it left off",
    "\n\nThe messages after this summary",
)

_COMMAND_NAME: Final = re.compile(r"<command-name>\s*(/?[^<]*?)\s*</command-name>")
_COMMAND_ARGS: Final = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_OUTPUT: Final = re.compile(r"\A\s*<local-command-(stdout|stderr)>(.*)</local-command-\1>\s*\Z", re.DOTALL)


def verdict(text: str) -> str | None:
    """The status that an error means which is all the harness's words: ``cancelled``, ``failed`` or ``None``."""
    return next((status for beginning, status in _VERDICTS if text.startswith(beginning)), None)


def tool_text(text: str) -> str:
    """The part of a tool's text result that is output; empty when all of it was written for the model."""
    error = _ERROR.match(text)
    if error:
        text = error[1]
    if "</system-reminder>" in text:
        text = _TRAILING_REMINDERS.sub("", text)
    if any(note.match(text) for note in _NOTES):
        return ""
    text = _CWD_RESET.sub("", _BACKGROUND.sub("", text))
    persisted = _PERSISTED.match(text) if text.startswith("<persisted-output>") else None
    return persisted[1] if persisted else text


def background_task(text: str) -> str | None:
    """The task that a result says to go on in the background; only for results without a structured form."""
    match = _BACKGROUND.search(text) or _LAUNCHED.match(text)
    return next((group for group in match.groups() if group), None) if match else None


def shell_errors(text: str) -> str:
    """What a command wrote to standard error, without the note on its shell's folder that follows it."""
    return _CWD_RESET.sub("", text)


def killed_output(text: str) -> str:
    """What a command printed before it was stopped, without the CLI's own last line."""
    return _KILLED.sub("", text)


def is_launch_note(text: str) -> bool:
    """Whether a subagent's result only says that it was launched in the background."""
    return _NOTES[-1].match(text) is not None


def only_reminders(text: str) -> bool:
    """Whether a text block holds nothing but reminders: older versions put them among a user's blocks."""
    return "<system-reminder>" in text and _ONLY_REMINDERS.fullmatch(text) is not None


def subagent_report(text: str) -> str:
    """What a subagent reported to its parent, without the frame, indentation and trailer around it.

    The frame is one line; every line of the report is indented by two blanks, so the first that is not ends it.
    """
    if text.lstrip().startswith("<tools-used-before-summary>"):
        text = _TOOLS_USED.sub("", text, count=1)
    if not text.startswith(_HAND_BACK):
        return _TRAILER.sub("", text)
    _, _, framed = text.partition("\n")
    lines = takewhile(lambda line: not line or line.startswith("  "), framed.split("\n"))
    return "\n".join(line.removeprefix("  ") for line in lines)


def summary_text(text: str) -> str:
    """The summary in a compaction's message, without the instructions to the model around it."""
    text, headed = _SUMMARY_HEAD.subn("", text, count=1)
    if not headed:
        return text.strip()
    for tail in _SUMMARY_TAILS:
        text, _, _ = text.partition(tail)
    return text.strip()


def command_line(text: str) -> str | None:
    """``/name arguments`` from the markup that a local command is stored with; ``None`` for anything else."""
    name = _COMMAND_NAME.search(text)
    if name is None or not name[1]:
        return None
    args = _COMMAND_ARGS.search(text)
    line = name[1] if name[1].startswith("/") else f"/{name[1]}"
    return f"{line} {args[1].strip()}" if args and args[1].strip() else line


def command_output(text: str) -> str | None:
    """What a local command printed; ``None`` when the text is no such output."""
    match = _OUTPUT.match(text)
    return match[2].strip() if match else None
