"""One broken agent for each check: our own, with one fault on its wire."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from support_check import Fault, Message, Prompt, update_of

__all__ = ["BROKEN"]

BROKEN: dict[str, type[Fault]] = {}
"""By the id of the one check that it does not pass."""

MARKER = "replay_complete"
KNOWN: Any = object()


def trips(check_id: str) -> Callable[[type[Fault]], type[Fault]]:
    def add(fault: type[Fault]) -> type[Fault]:
        assert check_id not in BROKEN
        BROKEN[check_id] = fault
        return fault

    return add


def code_of(m: Message) -> int:
    return int(m["error"]["code"]) if "error" in m else 0


def failing(m: Message, code: int = -32603) -> Message:
    """The same answer as an error with that code."""
    return {"jsonrpc": "2.0", "id": m["id"], "error": {"code": code, "message": "broken"}}


def result(m: Message, **fields: Any) -> Message:
    return {"jsonrpc": "2.0", "id": m["id"], "result": {**m.get("result", {}), **fields}}


def params(m: Message, **fields: Any) -> Message:
    return {**m, "params": {**m["params"], **fields}}


def keyless(m: Message) -> Message:
    return {**m, "params": {name: value for name, value in m["params"].items() if name != "idempotencyKey"}}


def kind(m: Message) -> str:
    return str(m.get("params", {}).get("update", {}).get("sessionUpdate", ""))


def session(m: Message) -> str:
    return str(m.get("params", {}).get("sessionId"))


def says(m: Message) -> str:
    return " ".join(str(block.get("text", "")) for block in m["params"]["prompt"])


def without(m: Message, field: str) -> Message:
    update = {name: value for name, value in m["params"]["update"].items() if name != field}
    return params(m, update=update)


# Base rules.


class Version(Fault):
    """Once only: with an agent of another version the run ends."""

    asked_for = 2
    done = False

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if self.done or asked.get("method") != "initialize" or asked["params"]["protocolVersion"] != self.asked_for:
            return [m]
        self.done = True
        return [result(m, protocolVersion=1)]


trips("base-version")(Version)


@trips("base-newer-version")
class NewerVersion(Version):
    asked_for = 99


@trips("base-info")
class NoVersion(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [result(m, info={"name": "broken"})] if self.asked(m).get("method") == "initialize" else [m]


@trips("base-initialize-first")
class ServesAnybody(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        if self.asked(m).get("method") == "session/new" and code_of(m) == -32600:
            return [{"jsonrpc": "2.0", "id": m["id"], "result": {"sessionId": "anybody"}}]
        return [m]


@trips("base-unknown-method")
class UnknownMethod(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [failing(m)] if self.asked(m).get("method") == "_sayagain/unknown" else [m]


@trips("base-unknown-notification")
class AnswersNotifications(Fault):
    seen = False

    def client(self, m: Message) -> Iterable[Message]:
        self.seen = self.seen or m.get("method") == "_sayagain/unknown_notification"
        return [m]

    def agent(self, m: Message) -> Iterable[Message | str]:
        if self.seen:
            self.seen = False
            return [{"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no such thing"}}, m]
        return [m]


@trips("base-parse-error")
class SwallowsGarbage(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [] if code_of(m) == -32700 else [m]


@trips("base-clean-output")
class Prints(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return ["Listening.", m] if self.asked(m).get("method") == "session/list" else [m]


@trips("base-message-form")
class NoVersionField(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        if self.asked(m).get("method") == "session/list":
            return [{name: value for name, value in m.items() if name != "jsonrpc"}]
        return [m]


@trips("base-one-answer")
class AnswersTwice(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [m, m] if self.asked(m).get("method") == "session/list" else [m]


@trips("base-ends")
class Overstays(Fault):
    overstays = True


@trips("base-message-ids")
class NoMessageId(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [without(m, "messageId")] if kind(m) == "agent_message_chunk" else [m]


class Once(Fault):
    """The first answer of its kind is an error."""

    done = False

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if self.done or "result" not in m or not self.wanted(asked):
            return [m]
        self.done = True
        return [failing(m)]

    def wanted(self, asked: Message) -> bool:
        raise NotImplementedError


@trips("session-new")
class NoSession(Once):
    def wanted(self, asked: Message) -> bool:
        return asked["method"] == "session/new"


@trips("prompt-inserted")
class NoPrompt(Once):
    def wanted(self, asked: Message) -> bool:
        return asked["method"] == "session/prompt"


@trips("session-ids-differ")
class SameSession(Fault):
    """Once: the second of two sessions that are made in a row is the first."""

    done = False

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/new" and "result" in m and not self.done:
            others = [session_id for session_id, process in self.created.items() if process == self.process]
            if len(others) > 1 and self.fresh:
                self.done = True
                return [result(m, sessionId=others[-2])]
            self.fresh = True
        elif asked:
            self.fresh = False
        return [m]

    fresh = False


@trips("session-resume")
class NoResume(Once):
    def wanted(self, asked: Message) -> bool:
        return asked["method"] == "session/resume" and self.resumed(session(asked))


@trips("session-relative-cwd")
class RelativeCwd(Fault):
    def client(self, m: Message) -> Iterable[Message]:
        relative = m.get("method") == "session/new" and m["params"]["cwd"] == "here"
        return [params(m, cwd="/here")] if relative else [m]


class OtherCode(Fault):
    """``wrong`` says which error answers get another code."""

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        return [failing(m)] if asked and code_of(m) and self.wrong(asked, code_of(m)) else [m]

    def wrong(self, asked: Message, code: int) -> bool:
        raise NotImplementedError


@trips("session-unknown-prompt")
class UnknownPrompt(OtherCode):
    def wrong(self, asked: Message, code: int) -> bool:
        return asked["method"] == "session/prompt" and session(asked) not in self.created


@trips("session-unknown-resume")
class UnknownResume(OtherCode):
    def wrong(self, asked: Message, code: int) -> bool:
        return asked["method"] == "session/resume" and session(asked) not in self.created


@trips("session-closed-prompt")
class ClosedPrompt(OtherCode):
    def wrong(self, asked: Message, code: int) -> bool:
        return asked["method"] == "session/prompt" and session(asked) in self.closed and code == -32002


@trips("session-close-again")
class CloseAgain(Fault):
    def __init__(self) -> None:
        super().__init__()
        self.ended: set[str] = set()

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") != "session/close":
            return [m]
        again = session(asked) in self.ended
        self.ended.add(session(asked))
        return [failing(m)] if again else [m]


@trips("session-delete-again")
class DeleteAgain(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [failing(m, -32002)] if self.asked(m).get("method") == "session/delete" else [m]


@trips("session-listed")
class EmptyList(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [result(m, sessions=[])] if self.asked(m).get("method") == "session/list" else [m]


@trips("prompt-answer")
class NoUserMessage(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        return [] if kind(m) == "user_message" and session(m) not in self.replaying else [m]


@trips("prompt-idle")
class NeverRunning(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        running = kind(m) == "state_update" and m["params"]["update"]["state"] == "running"
        return [] if running and session(m) not in self.replaying else [m]


class Rekeys(Fault):
    """Prompts get another key, or lose theirs."""

    def client(self, m: Message) -> Iterable[Message]:
        return [self.rekey(m, self.before(m))] if m.get("method") == "session/prompt" else [m]

    def rekey(self, m: Message, before: list[Prompt]) -> Message:
        raise NotImplementedError


class Forgets(Rekeys):
    """A retry loses its key when ``forgotten`` says so: it is given all prompts before it, and its first attempt."""

    def rekey(self, m: Message, before: list[Prompt]) -> Message:
        if (key := self.key(m)) is None:
            return m
        first = next((prompt for prompt in before if prompt.key == key), None)
        return keyless(m) if first is not None and self.forgotten(m, before, first) else m

    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        raise NotImplementedError

    def here(self, prompt: Prompt) -> bool:
        return prompt.process == self.process


@trips("prompt-stop-reason")
class Finished(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        if kind(m) == "state_update" and m["params"]["update"].get("stopReason") == "end_turn":
            return [params(m, update={**m["params"]["update"], "stopReason": "finished"})]
        return [m]


@trips("prompt-ids-differ")
class SameText(Rekeys):
    def rekey(self, m: Message, before: list[Prompt]) -> Message:
        return m if "idempotencyKey" in m["params"] else params(m, idempotencyKey=f"text {says(m)}")


@trips("prompt-unknown-block")
class UnknownBlock(OtherCode):
    def wrong(self, asked: Message, code: int) -> bool:
        return asked["method"] == "session/prompt" and "idempotencyKey" not in asked["params"] and code == -32602


# Keyed prompts.


@trips("key-retry")
class ForgetsAtOnce(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return len(before) == 1 and self.here(first) and first.over and first.text == says(m)


@trips("key-no-second-work")
class WorksAgain(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/prompt" and "result" in m:
            before = self.before(asked)
            if len(before) == 2 and before[0].over and before[0].key == before[1].key is not None:
                states = [update_of(session(asked), "state_update", state=state) for state in ("running", "idle")]
                return [m, *states]
        return [m]


@trips("key-not-told-again")
class TellsAgain(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/prompt" and "result" in m:
            before = self.before(asked)
            if len(before) == 2 and before[0].over and before[0].key == before[1].key is not None:
                message = {"messageId": m["result"]["messageId"], "content": asked["params"]["prompt"]}
                return [update_of(session(asked), "user_message", **message), m]
        return [m]


@trips("key-concurrent")
class Races(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return len(before) == 1 and first.answer is None


@trips("key-reconnected")
class ForgetsConnections(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return not self.here(first) and not self.killed and len(before) == 1


@trips("key-restarted")
class ForgetsWhenKilled(Forgets):
    count = 1

    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return not self.here(first) and self.killed and len(before) == self.count


@trips("key-killed-in-work")
class ForgetsWork(ForgetsWhenKilled):
    count = 2


@trips("key-inserted-during-work-restarted")
class ForgetsMerged(ForgetsWhenKilled):
    count = 3


@trips("key-running")
class ForgetsRunning(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return len(before) == 1 and first.answer is not None and not first.over


@trips("key-held")
class ForgetsHeld(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return len(before) == 2 and first.answer is None and first.barrier


@trips("key-inserted-during-work")
class ForgetsFolded(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return len(before) == 3 and self.here(first) and first is before[1]


@trips("key-compacted")
class ForgetsCompacted(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return any(prompt.text == "/compact" for prompt in before)


@trips("key-after-error")
class ErrorUsesKey(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/prompt" and "result" in m:
            key = self.key(asked)
            if any(prompt.unknown_block and prompt.key == key for prompt in self.before(asked)):
                return [failing(m, -32602)]
        return [m]


class OneScope(Fault):
    """A key that stood in another session is answered with that one's message."""

    forked = False

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        key = self.key(asked) if asked.get("method") == "session/prompt" else None
        if key is None or "result" not in m or (session(asked) in self.forks) is not self.forked:
            return [m]
        for session_id, prompts in self.prompts.items():
            for prompt in prompts:
                if session_id != session(asked) and prompt.key == key and prompt.answer:
                    return [{**prompt.answer, "id": m["id"]}]
        return [m]


trips("key-other-session")(OneScope)


@trips("key-fork")
class ForkScope(OneScope):
    forked = True


@trips("key-different-prompt")
class ComparesTexts(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        return first.text != says(m) and not first.unknown_block


@trips("key-stays-recorded")
class LosesFirst(Forgets):
    def forgotten(self, m: Message, before: list[Prompt], first: Prompt) -> bool:
        other = any(prompt.key == first.key and prompt.text != first.text for prompt in before)
        return first.text == says(m) and not first.unknown_block and other


@trips("key-private")
class QuotesKeys(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/prompt" and code_of(m) and isinstance(self.key(asked), str):
            return [{**m, "error": {**m["error"], "message": f"no prompt for {self.key(asked)}"}}]
        return [m]


@trips("key-not-listed")
class ListsKeys(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        keys = [prompt.key for prompts in self.prompts.values() for prompt in prompts]
        return [result(m, _meta={"keys": keys})] if self.asked(m).get("method") == "session/list" else [m]


# Values of keys.


class Values(Rekeys):
    def rekey(self, m: Message, before: list[Prompt]) -> Message:
        return self.value(m, m["params"]["idempotencyKey"]) if "idempotencyKey" in m["params"] else m

    def value(self, m: Message, key: Any) -> Message:
        raise NotImplementedError


@trips("key-null")
class NullIsKey(Values):
    def value(self, m: Message, key: Any) -> Message:
        return params(m, idempotencyKey="null") if key is None else m


@trips("key-case")
class Lowers(Values):
    def value(self, m: Message, key: Any) -> Message:
        return params(m, idempotencyKey=key.lower()) if isinstance(key, str) else m


@trips("key-spaces")
class Strips(Values):
    def value(self, m: Message, key: Any) -> Message:
        return params(m, idempotencyKey=key.strip()) if isinstance(key, str) else m


@trips("key-normal-form")
class Composes(Values):
    def value(self, m: Message, key: Any) -> Message:
        return params(m, idempotencyKey=unicodedata.normalize("NFC", key)) if isinstance(key, str) else m


@trips("key-whole")
class Cuts(Values):
    def value(self, m: Message, key: Any) -> Message:
        return params(m, idempotencyKey=key[:254]) if isinstance(key, str) and len(key) == 255 else m


@trips("key-empty")
class EmptyIsNone(Values):
    def value(self, m: Message, key: Any) -> Message:
        return keyless(m) if key == "" else m


@trips("key-too-long")
class LongIsNone(Values):
    def value(self, m: Message, key: Any) -> Message:
        return keyless(m) if isinstance(key, str) and len(key) > 255 else m


@trips("key-not-a-string")
class OthersAreNone(Values):
    def value(self, m: Message, key: Any) -> Message:
        return m if isinstance(key, str) or key is None else keyless(m)


@trips("key-longest")
class Shorter(Values):
    def value(self, m: Message, key: Any) -> Message:
        too_long = isinstance(key, str) and key.isascii() and len(key) == 255
        return params(m, idempotencyKey="k" * 256) if too_long else m


@trips("key-characters")
class CountsBytes(Values):
    def value(self, m: Message, key: Any) -> Message:
        too_long = isinstance(key, str) and not key.isascii() and len(key.encode()) > 255
        return params(m, idempotencyKey="k" * 256) if too_long else m


# Cancelling.


class Deaf(Fault):
    """Some ``$/cancel_request`` of prompts are not heard."""

    def client(self, m: Message) -> Iterable[Message]:
        if m.get("method") == "$/cancel_request":
            asked = self.requests.get(m["params"]["requestId"], {})
            if asked.get("method") == "session/prompt" and self.unheard(asked):
                return []
        return [m]

    def unheard(self, asked: Message) -> bool:
        raise NotImplementedError

    def attempt(self, asked: Message) -> int:
        attempts = [prompt.request_id for prompt in self.before(asked) if prompt.key == self.key(asked)]
        return attempts.index(asked["id"])


@trips("cancel-held")
class DeafToFirst(Deaf):
    def unheard(self, asked: Message) -> bool:
        return self.attempt(asked) == 0


@trips("cancel-any-attempt")
class DeafToSecond(Deaf):
    def unheard(self, asked: Message) -> bool:
        return self.attempt(asked) == 1


@trips("cancel-frees-key")
class CancelUsesKey(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/prompt" and "result" in m:
            mine = [prompt for prompt in self.before(asked) if prompt.key == self.key(asked) is not None]
            if any(code_of(prompt.answer or {}) == -32800 for prompt in mine):
                return [failing(m, -32602)]
        return [m]


@trips("cancel-truth")
class Lies(Fault):
    """What is cancelled in the same breath is answered as if it were withdrawn, and runs."""

    def __init__(self) -> None:
        super().__init__()
        self.lied: set[Any] = set()

    def client(self, m: Message) -> Iterable[Message]:
        at_once = self.last.get("method") == "session/prompt" and m.get("method") == "$/cancel_request"
        if at_once and m["params"]["requestId"] == self.last["id"]:
            self.lied.add(self.last["id"])
            return []
        return [m]

    def agent(self, m: Message) -> Iterable[Message | str]:
        if self.asked(m) and m["id"] in self.lied:
            self.lied.discard(m["id"])
            return [failing(m, -32800)]
        return [m]


@trips("session-cancel-held")
class CancelInserts(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/prompt" and code_of(m) == -32800 and session(asked) in self.cancelled:
            return [{"jsonrpc": "2.0", "id": m["id"], "result": {"messageId": "inserted"}}]
        return [m]


@trips("session-cancel-stops")
class CancelEndsTurn(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        if kind(m) == "state_update" and m["params"]["update"].get("stopReason") == "cancelled":
            return [params(m, update={**m["params"]["update"], "stopReason": "end_turn"})]
        return [m]


@trips("close-held")
class CloseFails(OtherCode):
    def wrong(self, asked: Message, code: int) -> bool:
        return asked["method"] == "session/prompt" and code == -32800 and session(asked) in self.closed


@trips("close-silent")
class TalksOn(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/close":
            return [m, update_of(session(asked), "session_info_update", title="Closed")]
        return [m]


# Replay.


class Replays(Fault):
    """Changes what passes for a session while its replay is under way."""

    def agent(self, m: Message) -> Iterable[Message | str]:
        if kind(m) and session(m) in self.replaying:
            return self.replayed(m, session(m))
        asked = self.asked(m)
        if asked.get("method") == "session/resume" and session(asked) in self.replaying:
            return self.answered(m, session(asked))
        return [m]

    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [m]

    def answered(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [m]


@trips("replay-whole")
class WrongOrder(Replays):
    """The first message is told after the second one."""

    held: Message | None = None

    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        if kind(m) == "user_message" and self.told == 0:
            self.held = m
            return []
        held, self.held = self.held, None
        if held is None:
            return [m]
        return [m, held] if kind(m) == "agent_message" else [held, m]


@trips("replay-compacted")
class TellsSummary(Replays):
    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        compacted = any(prompt.text == "/compact" for prompt in self.before(m))
        return (
            [] if kind(m) == "user_message" and compacted and self.told == 0 and self.replays[session_id] == 1 else [m]
        )


@trips("replay-ids")
class OtherIds(Replays):
    held = False

    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        held = len(self.before(m)) == 4 and "[hold" in self.before(m)[0].text
        if kind(m) == "user_message" and held is self.held:
            update = m["params"]["update"]
            return [params(m, update={**update, "messageId": f"stored-{update['messageId']}"})]
        return [m]


@trips("replay-ids-held")
class MergedIds(OtherIds):
    held = True


@trips("replay-same")
class FreshIds(Replays):
    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        if kind(m) == "agent_message" and self.replays[session_id] > 1:
            update = m["params"]["update"]
            return [params(m, update={**update, "messageId": f"again-{update['messageId']}"})]
        return [m]


@trips("replay-clears")
class BareChunks(Replays):
    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        if kind(m) == "agent_message":
            update = m["params"]["update"]
            chunk = {**update, "sessionUpdate": "agent_message_chunk", "content": update["content"][0]}
            return [params(m, update=chunk)]
        return [m]


@trips("replay-runs-nothing")
class RunsAgain(Replays):
    def answered(self, m: Message, session_id: str) -> Iterable[Message | str]:
        for prompt in self.prompts.get(session_id, []):
            if prompt.text:
                self.stage.start(prompt.text.rstrip(".").split()[-1])
        return [m]


@trips("replay-cursor")
class CursorFails(OtherCode):
    def wrong(self, asked: Message, code: int) -> bool:
        return asked["method"] == "session/resume" and code == -32602


class Resumes(Fault):
    """Changes the answer to a resume without replay."""

    null = False

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/resume" and asked["params"].get("replayFrom", KNOWN) is self.cursor():
            return self.answered(m, session(asked))
        return [m]

    def cursor(self) -> Any:
        return None if self.null else KNOWN

    def answered(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [update_of(session_id, MARKER), m]


trips("marker-not-without-cursor")(Resumes)


@trips("marker-not-for-null")
class NullReplays(Resumes):
    null = True


@trips("resume-no-history")
class TellsAnyway(Resumes):
    def answered(self, m: Message, session_id: str) -> Iterable[Message | str]:
        block = {"type": "text", "text": "Earlier."}
        return [update_of(session_id, "agent_message", messageId="earlier", content=[block]), m]


@trips("resume-state")
class NoState(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        waits = {session(asked) for asked in self.requests.values() if asked["method"] == "session/resume"}
        silent = kind(m) == "state_update" and session(m) in waits and self.before(m) != []
        fresh = self.resumed(session(m)) and session(m) not in self.replaying and not self.live(m)
        return [] if silent and fresh else [m]

    def live(self, m: Message) -> bool:
        return any(prompt.process == self.process for prompt in self.before(m))


@trips("replay-state")
class NoReplayState(Replays):
    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [] if kind(m) == "state_update" and session_id not in self.running else [m]


@trips("replay-of-streaming")
class LosesCut(Replays):
    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [] if kind(m) == "agent_message" and session_id in self.running else [m]


# The end of the replay.


class First(Replays):
    """Changes the first replay of a process of a session that has messages."""

    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        if self.resumed(session_id) and self.replays[session_id] == 1 and self.stage.store.before_entry is None:
            return self.first(m, session_id)
        return [m]

    def first(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [m]


@trips("marker-once")
class Twice(First):
    def first(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [m, m] if kind(m) == MARKER else [m]


@trips("marker-again")
class OnlyOnce(Replays):
    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [] if kind(m) == MARKER and self.replays[session_id] > 1 else [m]


@trips("marker-before-answer")
class LateMarker(First):
    late: Message | None = None

    def first(self, m: Message, session_id: str) -> Iterable[Message | str]:
        if kind(m) == MARKER:
            self.late = m
            return []
        return [m]

    def answered(self, m: Message, session_id: str) -> Iterable[Message | str]:
        late, self.late = self.late, None
        return [m, late] if late is not None else [m]


@trips("marker-after-history")
class EarlyMarker(First):
    early = False

    def first(self, m: Message, session_id: str) -> Iterable[Message | str]:
        if kind(m) == "agent_message" and self.told == 1:
            self.early = True
            return [update_of(session_id, MARKER), m]
        if kind(m) == MARKER and self.early:
            self.early = False
            return []
        return [m]


@trips("marker-only-history")
class TitleFirst(First):
    def first(self, m: Message, session_id: str) -> Iterable[Message | str]:
        title = update_of(session_id, "session_info_update", title="A title")
        return [m, title] if kind(m) == "user_message" and self.told == 0 else [m]


@trips("marker-only-history-live")
class StateFirst(Replays):
    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        state = update_of(session_id, "state_update", state="running")
        return [state, m] if kind(m) == MARKER and session_id in self.running else [m]


@trips("marker-empty")
class EmptyTitle(Replays):
    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        title = update_of(session_id, "session_info_update", title="A title")
        return [title, m] if kind(m) == MARKER and self.told == 0 else [m]


class Marked(Fault):
    """The answers to some requests come with a marker. ``wanted`` sees the request and its answer."""

    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked and self.wanted(asked, m):
            session_id = m.get("result", {}).get("sessionId") or session(asked)
            return [update_of(session_id, MARKER), m]
        return [m]

    def wanted(self, asked: Message, m: Message) -> bool:
        raise NotImplementedError


@trips("marker-not-for-new")
class NewMarked(Marked):
    def wanted(self, asked: Message, m: Message) -> bool:
        return asked["method"] == "session/new" and "result" in m


@trips("marker-not-for-fork")
class ForkMarked(Marked):
    def wanted(self, asked: Message, m: Message) -> bool:
        return asked["method"] == "session/fork" and "result" in m


@trips("marker-not-for-bad-cursor")
class CursorMarked(Marked):
    def wanted(self, asked: Message, m: Message) -> bool:
        return asked["method"] == "session/resume" and code_of(m) == -32602


@trips("marker-not-for-unknown")
class UnknownMarked(Marked):
    def wanted(self, asked: Message, m: Message) -> bool:
        unknown = session(asked) not in self.created and asked["params"].get("replayFrom") is not None
        return asked["method"] == "session/resume" and bool(code_of(m)) and unknown


@trips("marker-not-for-truncated")
class TruncatedMarked(Marked):
    def wanted(self, asked: Message, m: Message) -> bool:
        cut = code_of(m) not in (0, -32800, -32602) and session(asked) in self.created
        return asked["method"] == "session/resume" and cut


@trips("marker-cancelled")
class CancelledFails(OtherCode):
    def wrong(self, asked: Message, code: int) -> bool:
        return asked["method"] == "session/resume" and code == -32800


@trips("marker-not-active")
class ActiveEarly(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        asked = self.asked(m)
        if asked.get("method") == "session/prompt" and code_of(m) == -32002 and session(asked) in self.replaying:
            return [{"jsonrpc": "2.0", "id": m["id"], "result": {"messageId": "early"}}]
        return [m]


@trips("marker-before-asks")
class AsksEarly(Replays):
    open: Message | None = None

    def client(self, m: Message) -> Iterable[Message]:
        return [] if m.get("id") == "early" else [m]

    def agent(self, m: Message) -> Iterable[Message | str]:
        if m.get("method") == "session/request_permission":
            self.open = m
        return super().agent(m)

    def replayed(self, m: Message, session_id: str) -> Iterable[Message | str]:
        if kind(m) == MARKER and self.open is not None and session(self.open) == session_id:
            return [{**self.open, "id": "early"}, m]
        return [m]


# Subagent sessions.


class Children(Fault):
    """Changes what passes for the subagent sessions of a replay."""

    def agent(self, m: Message) -> Iterable[Message | str]:
        return self.child(m) if self.replaying and session(m) in self.children else [m]

    def child(self, m: Message) -> Iterable[Message | str]:
        return [m]


@trips("child-marker")
class ChildUnmarked(Children):
    def child(self, m: Message) -> Iterable[Message | str]:
        return [] if kind(m) == MARKER else [m]


@trips("child-announced-first")
class ChildEarly(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        if kind(m) == "subagent_update" and self.replaying:
            child = m["params"]["update"]["sessionId"]
            return [update_of(child, "tool_call_update", toolCallId="early", status="completed"), m]
        return [m]


@trips("child-only-history")
class ChildState(Children):
    def child(self, m: Message) -> Iterable[Message | str]:
        return [update_of(session(m), "state_update", state="idle"), m] if kind(m) == MARKER else [m]


@trips("child-after-history")
class ChildLate(Children):
    last_message: Message | None = None

    def child(self, m: Message) -> Iterable[Message | str]:
        if kind(m) == "agent_message":
            self.last_message = m
        return [m, self.last_message] if kind(m) == MARKER and self.last_message is not None else [m]


@trips("child-known")
class Stranger(Replays):
    def answered(self, m: Message, session_id: str) -> Iterable[Message | str]:
        return [update_of(f"{session_id}.nobody", MARKER), m] if "result" in m else [m]


@trips("child-not-listed")
class ListsChildren(Fault):
    def agent(self, m: Message) -> Iterable[Message | str]:
        if self.asked(m).get("method") == "session/list":
            rows: list[Mapping[str, Any]] = m["result"]["sessions"]
            return [result(m, sessions=[*rows, *({"sessionId": child, "cwd": "/project"} for child in self.children)])]
        return [m]
