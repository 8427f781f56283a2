"""The outbox's file: what it keeps, who shares it, and what is wrong with it."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from sayagain.client import Outbox, OutboxBusy, OutboxError, OutboxFull, OutboxTooNew, OutboxUnreadable, outbox_file
from sayagain.client.outbox import start_of_today
from sayagain.client.outbox_file import OutboxFile

CONTENT = [{"type": "text", "text": "a lone \ud83d surrogate, and ключ"}]

OPEN = Path(__file__).parent / "programs" / "open.py"

HOLDER = """
import sys, anyio
from sayagain.client import Outbox
async def main():
    async with Outbox(sys.argv[1]) as outbox:
        if sys.argv[2:]:
            await outbox.opened("s", "/")
        await outbox.add("s", "/", "theirs", [])
        print("ready", flush=True)
        sys.stdin.read()
anyio.run(main)
"""


def holder(path: Path, *, opened: bool = True) -> subprocess.Popen[bytes]:
    """Another process that has a pending prompt in session ``s``, which it has made if it was ``opened``."""
    command = [sys.executable, "-c", HOLDER, str(path), *(["opened"] if opened else [])]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


async def test_prompts_survive_and_keep_their_order(outbox_path: Path) -> None:
    async with Outbox(outbox_path) as outbox:
        for key in ("b", "a", "c"):
            await outbox.add("s", "/work", key, CONTENT)
        await outbox.done("a", "m-1")
    async with Outbox(outbox_path) as outbox:
        assert [(row.key, row.content) for row in await outbox.prompts()] == [("b", CONTENT), ("c", CONTENT)]
        (done,) = await outbox.prompts("s", states=("done",))
        assert (done.state, done.message_id) == ("done", "m-1")
        assert await outbox.sessions() == {"s": "/work"}
        assert await outbox.prompts("another") == []


async def test_nobody_else_can_read_it(outbox_path: Path) -> None:
    async with Outbox(outbox_path) as outbox:
        await outbox.add("s", "/", "k", CONTENT)
        for path in outbox_path.parent.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert [path.name for path in outbox_path.parent.iterdir()] == [outbox_path.name]


async def test_a_key_is_one_submission() -> None:
    async with Outbox() as outbox:
        await outbox.add("s", "/", "k", CONTENT)
        with pytest.raises(OutboxError, match="under this key"):
            await outbox.add("s2", "/", "k", [])


async def test_nothing_is_dropped_silently() -> None:
    async with Outbox() as outbox:
        for key in ("failed", "withdrawn", "done", "noted"):
            await outbox.add("s", "/", key, CONTENT)
        await outbox.failed("failed", -32602, "Invalid params")
        await outbox.withdrawn("withdrawn", "before it was sent")
        await outbox.done("done", "m")
        await outbox.note("noted", -32603, "The runtime ended")
        assert await outbox.prune(before=float("inf")) == 1
        rows = {row.key: (row.state, row.code, row.reason) for row in await outbox.prompts(states=_ALL)}
        assert rows == {
            "failed": ("failed", -32602, "Invalid params"),
            "withdrawn": ("withdrawn", None, "before it was sent"),
            "noted": ("pending", -32603, "The runtime ended"),
        }
        await outbox.reopen("failed")
        await outbox.discard("noted")
        assert [row.key for row in await outbox.prompts()] == ["failed"]


async def test_what_is_done_stays_done() -> None:
    async with Outbox() as outbox:
        await outbox.add("s", "/", "k", CONTENT)
        await outbox.done("k", "m")
        await outbox.failed("k", -32603, "late word")
        await outbox.reopen("k")
        await outbox.discard("k")
        (row,) = await outbox.prompts(states=_ALL)
        assert (row.state, row.message_id) == ("done", "m")


_ALL = ("pending", "done", "failed", "withdrawn", "discarded")


class TestOwners:
    async def test_a_living_process_keeps_its_prompts_and_a_dead_one_leaves_them(self, outbox_path: Path) -> None:
        process = holder(outbox_path)
        try:
            async with Outbox(outbox_path) as outbox:
                await outbox.add("s", "/", "ours", CONTENT)
                taken, elsewhere = await outbox.take("s")
                assert ([row.key for row in taken], elsewhere) == (["ours"], 1)
                with pytest.raises(OutboxBusy):
                    await outbox.move("s", "t")
                end(process)
                taken, elsewhere = await outbox.take("s", patience=10)
                assert ([row.key for row in taken], elsewhere) == (["theirs", "ours"], 0)
                assert await outbox.move("s", "t") == "t"
                assert [row.session_id for row in await outbox.prompts()] == ["t", "t"]
        finally:
            end(process)

    async def test_an_heir_of_the_lock_counts_as_its_owner(self, outbox_path: Path) -> None:
        """The agent of a killed client may still store its prompt."""
        async with Outbox(outbox_path) as first:
            await first.opened("s", "/")
            await first.add("s", "/", "k", CONTENT)
            command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
            agent = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=first.owner_descriptors)
        try:
            async with Outbox(outbox_path) as second:
                assert await second.take("s") == ([], 1)
                end(agent)
                taken, elsewhere = await second.take("s", patience=10)
                assert ([row.key for row in taken], elsewhere) == (["k"], 0)
        finally:
            end(agent)

    async def test_the_quicker_one_moves(self, outbox_path: Path) -> None:
        async with Outbox(outbox_path) as first:
            await first.opened("s", "/")
            await first.add("s", "/", "k", CONTENT)
        async with Outbox(outbox_path) as second, Outbox(outbox_path) as third:
            assert await second.unsettled("s")
            assert await second.move("s", "t2") == "t2"
            assert await third.move("s", "t3") == "t2"
            assert await third.follow("s") == "t2"
            await second.opened("t2", "/")
            await second.done("k", "m")
            assert not await second.unsettled("t2")

    async def test_an_agent_that_uses_an_id_twice(self) -> None:
        async with Outbox() as outbox:
            for session_id in ("s", "t"):
                await outbox.opened(session_id, "/")
            with pytest.raises(OutboxError, match="twice"):
                await outbox.move("s", "s")
            assert await outbox.move("s", "t") == "t"
            outbox._open._connection.execute("UPDATE sessions SET moved_to = 's' WHERE session_id = 't'")
            assert await outbox.follow("s") == "t"

    async def test_an_id_that_is_used_again_is_another_session(self) -> None:
        """What is known of the one that had it does not hold of the new one."""
        async with Outbox() as outbox:
            await outbox.opened("s", "/old")
            await outbox.add("s", "/old", "k", CONTENT)
            await outbox.opened("t", "/")
            assert await outbox.move("s", "t") == "t"
            await outbox.opened("s", "/new")
            assert await outbox.follow("s") is None
            # So there are no circles.
            assert await outbox.move("t", "s") == "s"
            assert await outbox.follow("t") == "s"
            assert [row.session_id for row in await outbox.prompts()] == ["s"]
            await outbox.done("k", "m")
            assert not await outbox.unsettled("s")
            await outbox.opened("s", "/")
            assert await outbox.unsettled("s")


class TestAddedToASessionThatWasMoved:
    @pytest.mark.parametrize("asked", ["follow", "move"])
    async def test_is_moved_along(self, outbox_path: Path, asked: str) -> None:
        async with Outbox(outbox_path) as first:
            for session_id in ("s", "t", "u"):
                await first.opened(session_id, "/")
            await first.move("s", "t")
            await first.move("t", "u")
            for session_id in ("s", "t", "u"):
                await first.add(session_id, "/", f"in {session_id}", CONTENT)
            await first.done("in u", "m")
        async with Outbox(outbox_path) as second:
            found = await (second.follow("s") if asked == "follow" else second.move("s", "x"))
            assert found == "u"
            taken, elsewhere = await second.take("u")
            assert ([row.key for row in taken], elsewhere) == (["in s", "in t"], 0)
            assert await second.prompts("s", states=_ALL) == await second.prompts("t", states=_ALL) == []

    async def test_is_left_to_an_owner_that_lives(self, outbox_path: Path) -> None:
        """The session may be active for it."""
        async with Outbox(outbox_path) as outbox:
            for session_id in ("s", "t"):
                await outbox.opened(session_id, "/")
            await outbox.move("s", "t")
            # What another process opens is not made: it knows the session since before.
            process = holder(outbox_path, opened=False)
            try:
                await outbox.add("s", "/", "ours", CONTENT)
                assert await outbox.follow("s") == "t"
                assert [(row.key, row.session_id) for row in await outbox.prompts()] == [("theirs", "s"), ("ours", "t")]
                end(process)
                assert await outbox.follow("s") == "t"
                assert {row.session_id for row in await outbox.prompts()} == {"t"}
            finally:
                end(process)

    async def test_is_left_when_the_session_was_stored_after_all(self, outbox_path: Path) -> None:
        """Another client had it active. Moved now, it could be inserted twice."""
        async with Outbox(outbox_path) as outbox:
            for session_id in ("s", "t", "u"):
                await outbox.opened(session_id, "/")
            await outbox.move("s", "t")
            await outbox.move("t", "u")
            for key in ("one", "two"):
                await outbox.add("t", "/", key, CONTENT)
            await outbox.done("one", "m")
            assert await outbox.follow("t") is None
            assert await outbox.follow("s") == "t"
            assert [row.session_id for row in await outbox.prompts()] == ["t"]


def _opener() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(OPEN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class TestNewFiles:
    """Several processes may open an outbox that is not there yet."""

    @pytest.mark.parametrize("processes", [2, 4])
    def test_they_make_it_together(self, tmp_path: Path, processes: int) -> None:
        with ExitStack() as stack:
            openers = [stack.enter_context(_opener()) for _ in range(processes)]
            for number in range(100):
                for opener in openers:
                    assert opener.stdin is not None
                    opener.stdin.write(f"{tmp_path / str(number)}.db\n".encode())
                    opener.stdin.flush()
                told = [opener.stdout.readline() for opener in openers if opener.stdout is not None]
                assert told == [b"opened\n"] * processes
            for opener in openers:
                opener.communicate(timeout=60)
                assert opener.returncode == 0

    def test_another_process_makes_it_between_two_looks(
        self, outbox_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[str] = []
        look = OutboxFile._one

        def make_it_meanwhile(file: OutboxFile, statement: str, *values: object) -> Any:
            found = look(file, statement, *values)
            looks.append(statement)
            if looks.count("PRAGMA application_id") == 1 and statement == "PRAGMA application_id":
                # It cannot, while this one looks; but if it could, that would be no fault of the file.
                with suppress(OutboxBusy):
                    OutboxFile(outbox_path, 0).close()
            return found

        monkeypatch.setattr(OutboxFile, "_one", make_it_meanwhile)
        OutboxFile(outbox_path, 5).close()
        assert looks.count("PRAGMA application_id") > 1

    def test_what_sqlite_does_not_wait_for_is_waited_for(
        self, outbox_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        outbox_path.parent.mkdir()
        other = sqlite3.connect(outbox_path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        steps: list[None] = []

        def step_back() -> None:
            steps.append(None)
            if len(steps) == 3:
                other.close()

        monkeypatch.setattr(outbox_file, "_step_back", step_back)
        OutboxFile(outbox_path, 5).close()
        assert len(steps) == 3

    def test_but_not_for_ever(self, outbox_path: Path) -> None:
        outbox_path.parent.mkdir()
        other = sqlite3.connect(outbox_path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OutboxBusy):
            OutboxFile(outbox_path, 0.05)
        other.close()


class TestBadFiles:
    @pytest.mark.parametrize("damage", ["text", "torn", "zeros"])
    async def test_a_damaged_file_is_left_alone(self, outbox_path: Path, damage: str) -> None:
        async with Outbox(outbox_path) as outbox:
            for number in range(100):
                await outbox.add("s", "/", f"k{number}", CONTENT * 20)
        data = outbox_path.read_bytes()
        bad = {"text": b"no database, " * 100, "torn": data[: len(data) // 2], "zeros": data[:4096] + bytes(len(data))}
        outbox_path.write_bytes(bad[damage])
        with pytest.raises(OutboxUnreadable):
            async with Outbox(outbox_path):
                pass
        assert outbox_path.read_bytes() == bad[damage]

    async def test_the_database_of_another_program(self, outbox_path: Path) -> None:
        outbox_path.parent.mkdir()
        other = sqlite3.connect(outbox_path)
        other.execute("CREATE TABLE prompts (x)")
        other.close()
        with pytest.raises(OutboxUnreadable, match="another program"):
            async with Outbox(outbox_path):
                pass

    async def test_a_later_version(self, outbox_path: Path) -> None:
        async with Outbox(outbox_path):
            pass
        later = sqlite3.connect(outbox_path)
        later.execute("PRAGMA user_version = 2")
        later.close()
        with pytest.raises(OutboxTooNew, match="version 2"):
            async with Outbox(outbox_path):
                pass

    async def test_a_locked_file(self, outbox_path: Path) -> None:
        async with Outbox(outbox_path, patience=0.05) as outbox:
            other = sqlite3.connect(outbox_path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(OutboxBusy):
                await outbox.add("s", "/", "k", CONTENT)
            other.execute("ROLLBACK")
            await outbox.add("s", "/", "k", CONTENT)
            other.close()

    async def test_a_full_disk(self, outbox_path: Path) -> None:
        async with Outbox(outbox_path) as outbox:
            await outbox.add("s", "/", "before", CONTENT)
            # SQLite's own limit gives the same error as a disk without room.
            outbox._open._connection.execute("PRAGMA max_page_count = 8")
            with pytest.raises(OutboxFull):
                await outbox.add("s", "/", "too much", CONTENT * 1000)
            assert (await outbox.prompts())[0].key == "before"

    @pytest.mark.skipif(os.name != "posix", reason="needs /dev/full's neighbours")
    @pytest.mark.parametrize("path", ["/proc/nothing/outbox.db", "/dev/null/outbox.db"])
    async def test_a_place_where_no_file_can_be(self, path: str) -> None:
        with pytest.raises(OutboxError):
            async with Outbox(path):
                pass

    async def test_a_directory(self, tmp_path: Path) -> None:
        with pytest.raises(OutboxError):
            async with Outbox(tmp_path):
                pass


async def test_many_tasks_share_one_outbox(outbox_path: Path) -> None:
    async with Outbox(outbox_path) as first, Outbox(outbox_path) as second, anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon((first, second)[number % 2].add, "s", "/", f"k{number}", CONTENT)
    async with Outbox(outbox_path) as third:
        assert len(await third.prompts()) == 20


def test_today_begins_at_midnight_here() -> None:
    import time

    local = time.localtime(start_of_today())
    assert (local.tm_hour, local.tm_min, local.tm_sec) == (0, 0, 0)
    assert 0 <= time.time() - start_of_today() < 25 * 3600
