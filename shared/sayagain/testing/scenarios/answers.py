"""What the model says, and what it fails to say."""

from __future__ import annotations

from typing import Final

from sayagain.testing.messages_script import ApiError, Cut, Step, Stop, Text, Thinking
from sayagain.testing.scenarios.base import Scenario, always, asking, bash

__all__ = ["SCENARIOS"]

_PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_LONG: Final = "One line.\nZweite Zeile äöü.\n```python\nprint('🙂')\n```\nThe end. "
_CONTEXT: Final = '\n<context ref="file:///home/user/project/notes.txt">\nalpha\n</context>'
_ONE_RETRY: Final = {"CLAUDE_CODE_MAX_RETRIES": "1"}

SCENARIOS: Final = (
    Scenario(
        "plain",
        "Two prompts, two short answers.",
        [
            Step("Say hello.", [[Text("Hello from the stand-in.")]]),
            Step("Say it again.", [[Text("Hello again.")]]),
        ],
        asking("Say hello.", "Say it again."),
    ),
    Scenario(
        "plain_echo",
        "A prompt with --replay-user-messages: the echo.",
        always([Text("Hello from the stand-in.")]),
        asking("Say hello.", arguments=["--replay-user-messages"]),
    ),
    Scenario(
        "thinking",
        "Thinking in deltas, then text; then thinking between two tool calls.",
        [
            Step("Think first.", [[Thinking("Let me think about it.", chunk=8), Text("Thought about it.")]]),
            Step(
                "Think and do.",
                [
                    [Thinking("I should look."), Text("I look."), bash("echo looked", "Look")],
                    [Thinking("I have looked."), Text("Looked.")],
                ],
            ),
        ],
        asking("Think first.", "Think and do."),
        keeps=["looked"],
    ),
    Scenario(
        "many_deltas",
        "Text in many deltas, with characters outside the BMP.",
        always([Text(_LONG * 2, chunk=4)]),
        asking("Write slowly."),
    ),
    Scenario(
        "image",
        "A prompt with an image.",
        always([Text("A pixel.")]),
        asking(
            [
                {"type": "text", "text": "What is this?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}},
            ]
        ),
        keeps=[_PIXEL],
    ),
    Scenario(
        "embedded_context",
        "A prompt of several text blocks: text, a link, an embedded file.",
        always([Text("Looked.")]),
        asking(
            [
                {"type": "text", "text": "Look at this: "},
                {"type": "text", "text": "[@notes.txt](file:///home/user/project/notes.txt)"},
                {"type": "text", "text": _CONTEXT},
            ]
        ),
        keeps=[_CONTEXT],
    ),
    Scenario(
        "api_error_400",
        "The service turns the request down.",
        always([ApiError(400, "invalid_request_error", "stand-in says no")]),
        asking("Fail."),
        keeps=["stand-in says no"],
    ),
    Scenario(
        "api_error_500",
        "The service is broken: a retry, then the error; the next prompt works.",
        [Step("Fail.", [[ApiError(500, "api_error", "stand-in is broken")]]), *always([Text("Went on.")])],
        asking("Fail.", "Go on."),
        environment=_ONE_RETRY,
        keeps=["stand-in is broken"],
    ),
    Scenario(
        "api_error_once",
        "The service is overloaded once; the retry works.",
        [Step(None, [[ApiError(529, "overloaded_error", "stand-in is busy")]], times=1), *always([Text("Worked.")])],
        asking("Try."),
        environment=_ONE_RETRY,
        keeps=["stand-in is busy"],
    ),
    Scenario(
        "no_key",
        "Nobody is signed in: the prompt is stored, then the runtime says so.",
        [],
        asking("Say hello."),
        environment={"ANTHROPIC_API_KEY": ""},
    ),
    Scenario(
        "bad_key",
        "The service refuses the key.",
        always([ApiError(401, "authentication_error", "stand-in knows no such key")]),
        asking("Say hello."),
        environment=_ONE_RETRY,
        keeps=["stand-in knows no such key"],
    ),
    Scenario(
        "rate_limited",
        "The service is asked too often, and says when to come again.",
        always([ApiError(429, "rate_limit_error", "stand-in is tired", {"retry-after": "1"})]),
        asking("Say hello."),
        environment=_ONE_RETRY,
        keeps=["stand-in is tired"],
    ),
    Scenario(
        "refusal",
        "The model refuses.",
        always([Text("No."), Stop("refusal")]),
        asking("Do evil."),
    ),
    Scenario(
        "max_tokens",
        "An answer that hits the output limit, and goes on by itself.",
        [
            Step("Write a lot.", [[Text("A lot of"), Stop("max_tokens")]], times=1),
            *always([Text(" text.")], [Text(" text.")]),
        ],
        asking("Write a lot."),
    ),
    Scenario(
        "cut_stream",
        "The stream is cut inside a block.",
        [
            Step(None, [[Text("This is the beg", chunk=4), Cut()]], times=1),
            *always([Text("This is the beginning and the end.")], [Text("The end.")]),
        ],
        asking("Say something long."),
        environment=_ONE_RETRY,
    ),
    Scenario(
        "max_turns",
        "The limit of model rounds is reached.",
        always(*([bash(f"echo {number}", "Loop")] for number in ("zero", "one", "two"))),
        asking("Loop.", arguments=["--max-turns", "2"]),
        keeps=["zero", "one", "two"],
    ),
)
