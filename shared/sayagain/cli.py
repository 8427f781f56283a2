"""The ``sayagain`` command.

Standard output belongs to the protocol; logs go to standard error or a file, and hold no key, token or prompt.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio

from sayagain import __version__

if TYPE_CHECKING:
    import argparse

    from sayagain.runtime.seam import Runtime

__all__ = ["main"]

logger = logging.getLogger(__name__)

BROKEN_PIPE = 128 + 13
"""The exit status of a command whose reader went away, as the shell reports one that SIGPIPE ended."""

LEVELS = ("debug", "info", "warning", "error")
LEVEL = "warning"
"""What is logged unless another level is asked for."""

RUNTIMES = ("claude", "codex")
"""Commands that serve a runtime; each is an entry point in the group ``sayagain.runtimes``."""

DEMOS = ("claude", "codex")
"""Runtimes that the demo can show."""

CHECK_USAGE = "%(prog)s [OPTION ...] -- CMD ..."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if len(words) == 1 and words[0] in RUNTIMES:
        # What an editor runs. The parser takes 8 of the 110 ms until `initialize` is answered (measured).
        run = partial(_serve, words[0])
    else:
        options = _parser().parse_args(words)
        run = partial(options.run, options)
    try:
        status: int = run()
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison] - it may be closed
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if (told := _expected(error)) is None:
            raise
        logger.debug("the command failed", exc_info=error)
        return told


def _expected(error: Exception) -> int | None:
    """The exit status for what is no fault of ours, told in one line; ``None`` for a fault that is."""
    from sayagain.errors import SayagainError

    while isinstance(error, ExceptionGroup):
        exceptions = list(cast("ExceptionGroup[Exception]", error).exceptions)
        if len(exceptions) > 1:
            return None
        error = exceptions[0]
    if not isinstance(error, OSError | SayagainError):
        return None
    if isinstance(error, BrokenPipeError):
        status = BROKEN_PIPE
    else:
        print(f"sayagain: {str(error) or type(error).__name__}", file=sys.stderr)
        status = 1
    # What could not be written is still in the buffer, and would fail again when Python ends.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="sayagain",
        description="Send it again: it lands once. An Agent Client Protocol agent in front of coding-agent runtimes.",
    )
    parser.add_argument("--version", action="version", version=f"sayagain {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    for name in RUNTIMES:
        # Abbreviations would be looked for in what is passed on to a login, too.
        serve = commands.add_parser(
            name, help=f"serve {name} as an ACP v2 agent on standard input and output", allow_abbrev=False
        )
        serve.add_argument("--log-level", choices=LEVELS, default=LEVEL, help="default: %(default)s")
        serve.add_argument("--log-file", type=Path, metavar="FILE", help="append the log to FILE, not standard error")
        serve.set_defaults(run=_serve_as_told, runtime=name)
        actions = serve.add_subparsers(metavar="[ACTION]")
        # No argument can begin with this character: all that follows is passed on, options and help as well.
        login = actions.add_parser(
            "login",
            help=f"sign in to {name} on this terminal; what follows is passed on to its login",
            prefix_chars="\0",
            add_help=False,
        )
        login.add_argument("arguments", nargs=argparse.REMAINDER)
        login.set_defaults(run=_login)

    demo = commands.add_parser("demo", help="show a crash that loses nothing: no account, no network")
    demo.add_argument("runtime", choices=DEMOS)
    demo.set_defaults(run=_demo)

    _add_check(commands.add_parser("check", help="check that any agent keeps the rules of ACP v2", usage=CHECK_USAGE))

    chat = commands.add_parser(
        "chat",
        help="talk to an agent on this terminal",
        usage="sayagain chat [-h] [--resume | --session ID] [--cwd DIR] [--outbox FILE] (claude|codex|-- COMMAND ...)",
    )
    which = chat.add_mutually_exclusive_group()
    which.add_argument("--resume", action="store_const", const="", dest="session", help="choose a session from a list")
    which.add_argument("--session", metavar="ID", help="go on with this session")
    chat.add_argument("--cwd", type=Path, default=Path(), metavar="DIR", help="the session's directory; default: this")
    chat.add_argument("--outbox", type=Path, metavar="FILE", help="where unconfirmed prompts are kept")
    chat.add_argument("agent", nargs="+", metavar="AGENT", help="claude, codex, or the command of any ACP v2 agent")
    chat.set_defaults(run=_chat)

    key = commands.add_parser(
        "key", help="read an idempotency key on standard input, print the id of the message it stands for"
    )
    key.add_argument("session_id", metavar="SESSION_ID")
    key.set_defaults(run=_key)
    return parser


def _serve_as_told(options: argparse.Namespace) -> int:
    return _serve(options.runtime, options.log_file, options.log_level)


def _serve(runtime: str, log_file: Path | None = None, log_level: str = LEVEL) -> int:
    with contextlib.ExitStack() as loading:
        loading.enter_context(_uncollected())
        from sayagain.transports.stdio import take_stdio

        # Until signals end the sessions in order there are none, and Python's own handler can be lost: what it raises
        # while a module is imported may be raised in a callback that swallows it (measured: 1 of 32 interrupts).
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if os.isatty(0):
            print(
                f"sayagain {runtime} speaks the Agent Client Protocol with an editor, on standard input and output."
                f" To talk to it on this terminal: sayagain chat {runtime}",
                file=sys.stderr,
            )
        # First of all: from here on no stray print can reach the protocol.
        transport = take_stdio()
        _log_to(log_file, log_level)
        anyio.run(_serve_stdio, _runtime(runtime), transport, loading)
    return 0


@contextlib.contextmanager
def _uncollected() -> Generator[None]:
    """For while modules are loaded: collections find nothing then, since all that loading makes stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _serve_stdio(runtime: Runtime, transport: Any, loading: contextlib.ExitStack) -> None:
    """Until standard input closes or a signal asks for the end: both close every session in order.

    ``loading`` is closed when everything is loaded.
    """
    async with runtime:
        # Not before: what the runtime has started needs the time that the rest takes to load.
        from sayagain.agent import Agent

        loading.close()
        async with Agent(runtime) as agent, anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, tasks.cancel_scope)
            await agent.serve(transport)
            tasks.cancel_scope.cancel()


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    wanted = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if sys.platform != "win32" else [])]
    with anyio.open_signal_receiver(*wanted) as signals:
        async for _ in signals:
            scope.cancel()


def _login(options: argparse.Namespace) -> int:
    """The client runs this on a terminal of its own (``auth_methods``); it ends with the login's exit status."""
    return int(_hook(options.runtime, "login")(options.arguments))


def _demo(options: argparse.Namespace) -> int:
    from sayagain.demo import run_demo

    return run_demo(options.runtime)


def _add_check(check: argparse.ArgumentParser) -> None:
    import argparse

    check.add_argument(
        "--runtime",
        choices=("plain", *RUNTIMES),
        default="plain",
        help="put a stand-in for the model behind an agent of this runtime; plain leaves the agent as it is",
    )
    check.add_argument("--cwd", type=Path, help="where a plain agent's sessions work; default: an empty folder")
    check.add_argument(
        "--patience",
        type=_seconds,
        metavar="SECONDS",
        help="how long to wait for an answer, or for the end of a prompt's work; default: 120, with a stand-in 30",
    )
    check.add_argument(
        "--limit",
        type=_seconds,
        metavar="SECONDS",
        help="how long the whole run may take; default: 1800, with a stand-in 900",
    )
    check.add_argument("--only", action="append", metavar="PART", help="the checks whose id has PART in it; repeatable")
    check.add_argument("--list", action="store_true", help="show the checks, run none")
    check.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    check.add_argument("--html", type=Path, metavar="FILE", help="write the report as one page, with diagrams")
    check.add_argument("--strict", action="store_true", help="let warnings count as failures in the exit status")
    check.add_argument("agent", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="the agent's command")
    check.set_defaults(run=_check)


def _seconds(text: str) -> float:
    import argparse

    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return seconds


def _check(options: argparse.Namespace) -> int:
    from sayagain.check.command import check_command

    return check_command(options)


def _chat(options: argparse.Namespace) -> int:
    from sayagain.chat import run_chat

    name, *arguments = options.agent
    ours = name in RUNTIMES and not arguments
    command = [sys.executable, "-m", "sayagain", name] if ours else options.agent
    cwd = options.cwd.resolve()
    return run_chat(command, name=name if ours else "", cwd=cwd, resume=options.session, outbox=options.outbox)


def _key(options: argparse.Namespace) -> int:
    """For support: which stored message a key stands for. The key is read, not passed, so no process list shows it."""
    from sayagain.errors import InvalidParams
    from sayagain.identity import derive_message_id, validate_key

    line = sys.stdin.readline()
    try:
        key = validate_key(line.removesuffix("\n").removesuffix("\r"), "key")
    except InvalidParams as error:
        print(f"sayagain: the key {error.reason}", file=sys.stderr)
        return 2
    assert key is not None
    print(derive_message_id(options.session_id, key))
    return 0


def _runtime(name: str) -> Runtime:
    return cast("Runtime", _hook(name, "create_runtime")())


def _hook(name: str, attribute: str) -> Callable[..., Any]:
    """A function of the adapter's package, which the entry point of that name leads to."""
    from importlib import import_module

    # Our own adapters are found by the name of their package: to read the entry points of everything that is
    # installed would take longer than all else before `initialize` is answered (27 of 110 ms, measured).
    try:
        return cast("Callable[..., Any]", getattr(import_module(f"sayagain_{name}"), attribute))
    except ModuleNotFoundError:
        from importlib.metadata import entry_points

        for entry in entry_points(group="sayagain.runtimes", name=name):
            return cast("Callable[..., Any]", getattr(import_module(entry.module), attribute))
    raise SystemExit(f"sayagain: the runtime {name} is not installed")


def _log_to(file: Path | None, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
