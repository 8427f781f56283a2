"""Promises about a session that works: storing, events, interrupting, asking, owning, dying, closing."""

from __future__ import annotations

from typing import Final

import anyio

from sayagain.errors import InvalidParams, SayagainError, SessionInUse
from sayagain.runtime.events import Ask, AskWithdrawn, ChildAnnounced, Foreground, Inserted, Rejected, Update
from sayagain.runtime.history import ChildStarts, HistoryEnds, HistoryUpdate, UserTurn
from sayagain.testing.contract.harness import (
    PATIENCE,
    Behaviour,
    BrokenPromise,
    Check,
    Driver,
    raises,
    require,
    working,
)

__all__ = ["TURNS"]


async def a_message_is_inserted_exactly_once(driver: Driver) -> None:
    """``Inserted`` once, only when it is found in ``message_ids`` (:class:`Watched` looks), stored once."""
    async with working(driver) as work:
        session = await work.new()
        message_id = await session.turn()
        await session.turn()
        require(len(session.outcomes(message_id)) == 1, "one Inserted for one message")
        require(list(driver.stored(session.session_id)).count(message_id) == 1, "a message is stored once")


async def a_turn_is_running_then_idle(driver: Driver) -> None:
    """``running``, the updates of the work, one ``idle`` with its stop reason; nothing of the work comes later."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        states = [event.state for event in session.changes()]
        require(states == ["running", "idle"], f"one piece of work is running, then idle; it was {states}")
        require(session.idles()[0].stop_reason == "end_turn", "work that is done ends with end_turn")
        kinds = [_kind(event) for event in session.events]
        words = [index for index, kind in enumerate(kinds) if kind == "agent_message_chunk"]
        require(words, "the answer is streamed")
        running, idle = (session.events.index(event) for event in session.changes())
        require(running < words[0], "work begins with running")
        require(words[-1] < idle, "the words of a turn come before its idle")


async def messages_are_stored_in_order(driver: Driver) -> None:
    """One after the other, each after the idle of the one before."""
    async with working(driver) as work:
        session = await work.new()
        submitted = [await session.turn() for _ in range(3)]
        require(list(driver.stored(session.session_id)) == submitted, "messages are stored in the order of submits")


async def an_interrupt_ends_the_work_as_cancelled(driver: Driver) -> None:
    """One ``idle`` with ``cancelled``; the message stays, and the session works on."""
    async with working(driver) as work:
        session = await work.new()
        message_id = await session.stored(Behaviour.HOLD)
        await _held(driver)
        await session.session.interrupt()
        await session.until(session.idles, "interrupted work ends with an idle")
        require([e.stop_reason for e in session.idles()] == ["cancelled"], "interrupted work ends with cancelled, once")
        require(message_id in driver.stored(session.session_id), "what is stored stays stored")
        await session.turn()
        require([e.stop_reason for e in session.idles()] == ["cancelled", "end_turn"], "the session works on")


async def an_interrupt_of_nothing_does_nothing(driver: Driver) -> None:
    """No event, and the next work does not end as cancelled."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        await session.session.interrupt()
        await session.turn()
        require([e.stop_reason for e in session.idles()] == ["end_turn", "end_turn"], "an idle session stays idle")


async def a_stored_message_is_not_withdrawn(driver: Driver) -> None:
    """``withdraw`` is false once it is stored."""
    async with working(driver) as work:
        session = await work.new()
        message_id = await session.stored(Behaviour.HOLD)
        await _held(driver)
        require(not await session.session.withdraw(message_id), "a stored message cannot be taken back")
        require(driver.stored(session.session_id) == [message_id], "a failed withdraw changes nothing")
        await session.session.interrupt()


async def a_withdrawn_message_is_never_stored(driver: Driver) -> None:
    """True: no event follows, nothing is stored, the id is free. False: ``Inserted`` or ``Rejected`` still comes."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        message_id = await session.submit(Behaviour.ANSWER)
        if await session.session.withdraw(message_id):
            require(not session.outcomes(message_id), "no event follows a withdraw that worked")
        else:
            await session.until(lambda: session.outcomes(message_id), "a message that was not withdrawn has an outcome")
        if not any(isinstance(outcome, Inserted) for outcome in session.outcomes(message_id)):
            require(message_id not in driver.stored(session.session_id), "what is taken back is not stored")
            # Inserted once more is the proof that nothing of the first comes later.
            await session.turn(Behaviour.ANSWER, message_id)
        await session.turn()
        inserted = [outcome for outcome in session.outcomes(message_id) if isinstance(outcome, Inserted)]
        require(len(inserted) == 1, "one Inserted for one message")
        require(list(driver.stored(session.session_id)).count(message_id) == 1, "a message is stored once")


async def a_refused_message_leaves_nothing(driver: Driver) -> None:
    """An error from ``submit``, or one ``Rejected`` and an ``idle``; nothing is stored, and its id is free."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        try:
            message_id = await session.submit(Behaviour.REFUSE)
        except SayagainError:
            message_id = None
        if message_id is not None:
            await session.until(lambda: session.outcomes(message_id), "a submit that returned has an outcome")
            (outcome,) = session.outcomes(message_id)
            require(isinstance(outcome, Rejected), "a message that is turned away is Rejected")
            await session.until(lambda: session.idle_after(outcome), "an idle follows a Rejected")
            require(message_id not in await work.runtime.message_ids(session.session_id), "a Rejected leaves no id")
            await session.turn(Behaviour.ANSWER, message_id)
            require(list(driver.stored(session.session_id)).count(message_id) == 1, "a refused id can be used again")
        await session.turn()


async def an_ask_is_answered(driver: Driver) -> None:
    """The wire request with the session's id; the work goes on with the answer."""
    async with working(driver) as work:
        session = await work.new()
        await session.stored(Behaviour.ASK)
        await session.until(lambda: session.of(Ask), "a tool that needs a permission asks")
        (ask,) = session.of(Ask)
        require(ask.params["sessionId"] == ask.session_id, "the request names the session of the ask")
        require(ask.method == "session/request_permission", "a permission is asked for with its wire method")
        option = next(o for o in ask.params["options"] if o["kind"] == "allow_once")
        selected = {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        await session.session.answer(ask.ask_id, selected)
        await session.until(session.idles, "the work goes on after the answer")
        require(session.idles()[0].stop_reason == "end_turn", "an allowed tool runs")
        await session.session.answer(ask.ask_id, selected)  # late answers are ignored


async def an_ask_without_an_answer_ends(driver: Driver) -> None:
    """``None`` is a refusal that the runtime can live with; an interrupt withdraws the ask."""
    async with working(driver) as work:
        session = await work.new()
        await session.stored(Behaviour.ASK)
        await session.until(lambda: session.of(Ask), "a tool that needs a permission asks")
        await session.session.answer(session.of(Ask)[0].ask_id, None)
        await session.until(session.idles, "an ask that failed does not keep the work from ending")
        await session.stored(Behaviour.ASK)
        await session.until(lambda: len(session.of(Ask)) == 2, "the next tool asks again")
        await session.session.interrupt()
        await session.until(lambda: len(session.idles()) == 2, "an interrupt ends work that waits for an answer")
        require(session.idles()[1].stop_reason == "cancelled", "interrupted work ends with cancelled")
        withdrawn = [event.ask_id for event in session.of(AskWithdrawn)]
        require(withdrawn == [session.of(Ask)[1].ask_id], "an interrupt withdraws the open ask, and that alone")


async def a_child_is_announced_first(driver: Driver) -> None:
    """Live and in the history, under the same id; in the history its end is told."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn(Behaviour.DELEGATE)
        (announced,) = session.of(ChildAnnounced)
        child_id = announced.child_id
        require(announced.parent_id == session.session_id, "the parent is named")
        require(announced.update["sessionUpdate"] == "subagent_update", "a child is announced by a subagent_update")
        about = [e for e in session.events if isinstance(e, (Update, Foreground, Ask)) and e.session_id == child_id]
        require(about, "a child's work is reported under its id")
        require(
            session.events.index(announced) < session.events.index(about[0]), "the announcement comes first (SUB-1)"
        )
        entries = await session.history()
        starts = [entry.child_id for entry in entries if isinstance(entry, ChildStarts)]
        ends = [entry.session_id for entry in entries if isinstance(entry, HistoryEnds)]
        require(starts == ends == [child_id], f"one start and one end, under the live id {child_id}: {starts}, {ends}")
        # A start's own session is its parent's, so the rest is what bears the child's id.
        kinds = (UserTurn, HistoryUpdate, HistoryEnds)
        own = [i for i, e in enumerate(entries) if isinstance(e, kinds) and e.session_id == child_id]
        first = next(index for index, entry in enumerate(entries) if isinstance(entry, ChildStarts))
        require(first < own[0], "the announcement comes first in the history")
        require(isinstance(entries[own[-1]], HistoryEnds), "nothing of a child comes after its end")


async def one_process_owns_a_session(driver: Driver) -> None:
    """``own`` refuses while another live runtime owns the session; ``close`` gives it free."""
    async with working(driver) as one, working(driver) as two:
        session = await one.new()
        await session.turn()
        await session.session.own()
        await session.session.own()  # idempotent
        other = await two.resume(session.session_id)
        await raises(SessionInUse, other.session.own(), "a session has one owner")
        await session.session.close()
        await other.session.own()
        await other.turn()
        require(len(driver.stored(session.session_id)) == 2, "the next owner goes on with what is stored")


async def a_crash_before_the_message_is_stored_rejects_it(driver: Driver) -> None:
    """One ``Rejected``, an ``idle``, nothing stored; the session recovers, and the id is free."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        await driver.freeze(session.session)
        message_id = await session.submit(Behaviour.ANSWER)
        await driver.kill(session.session)
        await session.until(lambda: session.outcomes(message_id), "a submit that returned has an outcome")
        (outcome,) = session.outcomes(message_id)
        require(isinstance(outcome, Rejected), "a message that died with the runtime: Rejected")
        await session.until(lambda: session.idle_after(outcome), "an idle follows a Rejected")
        require(message_id not in driver.stored(session.session_id), "a Rejected leaves no id")
        await session.turn(Behaviour.ANSWER, message_id)
        require(list(driver.stored(session.session_id)).count(message_id) == 1, "after a crash the id can be used")


async def a_crash_after_the_message_is_stored_ends_the_work(driver: Driver) -> None:
    """The ``Inserted`` stands, the work ends with ``error``, the session recovers."""
    async with working(driver) as work:
        session = await work.new()
        message_id = await session.stored(Behaviour.HOLD)
        await _held(driver)
        await driver.kill(session.session)
        await session.until(session.idles, "work that dies ends with an idle")
        (idle,) = session.idles()
        require(idle.stop_reason == "error", "work that dies ends with error")
        require(idle.error is not None and {"code", "message"} <= set(idle.error), "with a wire error")
        await session.turn()
        require(len(session.outcomes(message_id)) == 1, "one Inserted, no Rejected later")
        require(driver.stored(session.session_id)[0] == message_id, "what is stored stays stored")


async def close_ends_the_stream_and_is_idempotent(driver: Driver) -> None:
    """Work is stopped, the stream ends, nothing can be submitted, what is stored stays."""
    async with working(driver) as work:
        session = await work.new()
        message_id = await session.stored(Behaviour.HOLD)
        await _held(driver)
        with anyio.fail_after(PATIENCE):
            await session.session.close()
            await session.session.close()
        await session.until_ended()
        try:
            await session.submit(Behaviour.ANSWER)
        except SayagainError:
            pass
        else:
            raise BrokenPromise("nothing can be submitted to a closed session")
        require(driver.stored(session.session_id) == [message_id], "what is stored stays, and nothing is added")


async def leaving_the_runtime_closes_its_sessions(driver: Driver) -> None:
    """Sessions live no longer than their runtime."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
    await session.until_ended()
    async with working(driver) as work:
        await (await work.resume(session.session_id)).turn()


async def a_snapshot_is_of_the_session_itself(driver: Driver) -> None:
    """Updates in wire form, of kinds that are no history."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        kinds = {update["sessionUpdate"] for update in session.session.snapshot()}
        history = {"user_message", "agent_message", "agent_thought", "tool_call_update", "replay_complete"}
        require(not kinds & history, f"a snapshot holds no history: {kinds & history}")


async def what_cannot_be_set_or_cancelled_is_refused(driver: Driver) -> None:
    """Unknown options, tool calls and terminals are ``InvalidParams``, and nothing happens."""
    async with working(driver) as work:
        session = await work.new()
        await session.turn()
        before = session.session.options()
        await raises(InvalidParams, session.session.set_option("no option", "x"), "an unknown option is refused")
        await raises(InvalidParams, session.session.cancel_tool_call("no call"), "an unknown tool call is refused")
        await raises(InvalidParams, session.session.cancel_terminal("no terminal"), "an unknown terminal is refused")
        require(session.session.options() == before, "what is refused changes nothing")
        if work.runtime.capabilities.auth_status:
            await work.runtime.auth_status()  # told, never AuthRequired


async def _held(driver: Driver) -> None:
    with anyio.fail_after(PATIENCE):
        await driver.held()


def _kind(event: object) -> str:
    return str(event.update["sessionUpdate"]) if isinstance(event, Update) else type(event).__name__


TURNS: Final[tuple[Check, ...]] = (
    a_message_is_inserted_exactly_once,
    a_turn_is_running_then_idle,
    messages_are_stored_in_order,
    an_interrupt_ends_the_work_as_cancelled,
    an_interrupt_of_nothing_does_nothing,
    a_stored_message_is_not_withdrawn,
    a_withdrawn_message_is_never_stored,
    a_refused_message_leaves_nothing,
    an_ask_is_answered,
    an_ask_without_an_answer_ends,
    a_child_is_announced_first,
    one_process_owns_a_session,
    a_crash_before_the_message_is_stored_rejects_it,
    a_crash_after_the_message_is_stored_ends_the_work,
    close_ends_the_stream_and_is_idempotent,
    leaving_the_runtime_closes_its_sessions,
    a_snapshot_is_of_the_session_itself,
    what_cannot_be_set_or_cancelled_is_refused,
)
