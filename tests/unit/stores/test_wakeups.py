"""FIFOs beside the file: a token for one who waits, and what may happen to it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import LeaseRequest, Put, StoredMessage, Waiter
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.wakeups import tellers
from localqueue.stores.sqlite.wakeups.fifo_waiter import FifoWaiter
from localqueue.stores.sqlite.wakeups.protocol import POLL

NOW = 1_700_000_000.0
PATIENCE = 20.0
ON_LINUX = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


class Store(SQLiteQueueStore):
    """A store with short words, whose queue ``jobs`` is used and empty."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="relaxed")
        self.folder = path.with_name(f"{path.name}-run")
        for queue in ("jobs", "other"):
            self.configure(queue, {"crash_limit": 7}, now=NOW)

    def put(self, *values: bytes, queue: str = "jobs", delay: float = 0.0) -> None:
        self.enqueue_many([Put(queue, value, delay=delay) for value in values or [b"1"]], now=NOW)

    def take(self, limit: int = 1, queue: str = "jobs") -> list[StoredMessage]:
        return list(self.lease(LeaseRequest((queue,), limit), now=NOW))

    def fifo(self, what: str = "ready") -> Path:
        return self.folder / f"{what}-{self._questions.numbers(['jobs'])['jobs']}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "queue.sqlite3") as store:
        yield store


def told(*waiters: Waiter) -> list[bool]:
    """Who is told by now."""
    return [waiter.wait(0.0) for waiter in waiters]


def close(*waiters: Waiter) -> None:
    for waiter in waiters:
        waiter.close()


# --- one token, one waiter --------------------------------------------------------------------
def test_one_message_wakes_one_of_many(store: Store) -> None:
    waiters = [store.watch(["jobs"], "ready") for _ in range(8)]

    store.put()
    assert sum(told(*waiters)) == 1
    assert sum(told(*waiters)) == 0
    store.put()
    store.put()
    assert sum(told(*waiters)) == 2

    close(*waiters)


def test_who_empties_the_queue_tells_nobody(store: Store) -> None:
    first, second = (store.watch(["jobs"], "ready") for _ in range(2))
    store.put()
    assert told(first) == [True]

    store.take()
    first.close()

    assert told(second) == [False]
    second.close()


def test_who_leaves_a_message_tells_one(store: Store) -> None:
    first, *others = (store.watch(["jobs"], "ready") for _ in range(3))
    store.put(b"1", b"2")
    assert told(first) == [True]

    store.take()
    first.close()

    assert sum(told(*others)) == 1
    close(*others)


def test_who_takes_away_the_tokens_of_sleepers_owes_them(store: Store) -> None:
    sleeper = store.watch(["jobs"], "ready")
    store.put(b"1", b"2")

    newcomer = store.watch(["jobs"], "ready")
    assert told(sleeper) == [False], "the newcomer is about to look"
    store.take()
    newcomer.close()

    assert told(sleeper) == [True]
    sleeper.close()


@pytest.mark.parametrize(("delay", "tells"), [(0.5, True), (30.0, False)])
def test_what_is_due_within_a_second_is_left_for_the_next(
    store: Store, delay: float, tells: bool
) -> None:
    first, second = (store.watch(["jobs"], "ready") for _ in range(2))
    store.put(delay=delay)
    assert told(first) == [True], "it has to sleep shorter now"

    first.close()

    assert told(second) == [tells]
    second.close()


def test_what_is_ready_in_a_paused_queue_is_left_for_nobody(store: Store) -> None:
    first, second = (store.watch(["jobs"], "ready") for _ in range(2))
    store.put()
    assert told(first) == [True]

    store.configure("jobs", {"paused": True}, now=NOW)
    assert told(second) == [True], "settings are told"
    close(first)

    assert told(second) == [False]
    store.configure("jobs", {"paused": False}, now=NOW)
    assert told(second) == [True]
    second.close()


def test_what_a_subscriber_has_not_read_is_left_for_the_next(store: Store) -> None:
    store.configure("topic", {"fanout": "cursor"}, now=NOW)
    store.subscribe("topic", "a", now=NOW)
    first, second = (store.watch(["topic.a"], "ready") for _ in range(2))
    store.put(b"1", b"2", queue="topic")
    assert told(first) == [True]

    store.take(queue="topic.a")
    first.close()

    assert told(second) == [True]
    second.close()


def test_room_is_left_for_the_next_while_there_is_some(store: Store) -> None:
    store.configure("jobs", {"maxsize": 2, "overflow": "block"}, now=NOW)
    store.put(b"1", b"2")
    waiters = [store.watch(["jobs"], "room") for _ in range(3)]
    store.take(2)

    for waiter in waiters[:2]:
        assert told(waiter) == [True]
        store.put()
        waiter.close()

    assert told(waiters[2]) == [False]
    waiters[2].close()


def test_a_queue_without_bounds_tells_nobody_of_room_until_its_bound_is_lifted(
    store: Store,
) -> None:
    waiter = store.watch(["jobs"], "room")
    store.put()
    store.take()
    assert told(waiter) == [False]

    store.configure("jobs", {"maxsize": 1}, now=NOW)
    assert told(waiter) == [True]
    store.configure("jobs", {"maxsize": 0}, now=NOW)
    assert told(waiter) == [True]
    waiter.close()


def test_who_waits_for_several_queues_owes_each_whose_token_it_took(store: Store) -> None:
    both = store.watch(["jobs", "other"], "ready")
    jobs, other = (store.watch([queue], "ready") for queue in ("jobs", "other"))
    store.put(b"1", b"2", queue="jobs")
    store.put(b"1", b"2", queue="other")
    assert [both.wait(0.0) for _ in range(3)] == [True, True, False]

    store.take(2, queue="jobs")
    store.take(1, queue="other")
    both.close()

    assert told(jobs, other) == [False, True]
    close(jobs, other)


def test_a_queue_that_is_made_is_told_to_all_who_wait_for_one(store: Store) -> None:
    waiters = [store.watch(["jobs", name], "ready") for name in ("a", "b", "c")]

    store.put(queue="b")

    assert told(*waiters) == [True, True, True]
    store.take(queue="b")
    store.put(b"2", queue="b")
    assert told(*waiters) == [False, True, False]
    store.put(queue="c")
    assert told(*waiters) == [True, False, True]
    close(*waiters)


def test_a_queue_that_is_made_while_somebody_begins_to_wait_is_not_missed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = store._questions.numbers

    def make_it_in_between(queues: Sequence[str]) -> dict[str, int]:
        monkeypatch.setattr(store._questions, "numbers", numbers)
        answer = numbers(queues)
        store.put(queue="new")
        return answer

    monkeypatch.setattr(store._questions, "numbers", make_it_in_between)
    waiter = store.watch(["new"], "ready")
    store.take(queue="new")

    store.put(b"2", queue="new")

    assert told(waiter) == [True]
    waiter.close()


def test_a_message_that_is_held_tells_nobody(store: Store) -> None:
    store.configure("jobs", {"ordering": "per-key"}, now=NOW)
    waiter = store.watch(["jobs"], "ready")

    tells = []
    for _ in range(2):
        store.enqueue_many([Put("jobs", b"1", ordering_key="k")], now=NOW)
        tells += told(waiter)

    assert tells == [True, False]
    waiter.close()


def test_in_memory_everybody_is_told_of_everything_once() -> None:
    with MemoryQueueStore() as store:
        store.configure("jobs", {"crash_limit": 7}, now=NOW)
        waiters = [store.watch(["jobs"], "ready") for _ in range(2)]
        other = store.watch(["other", "not yet"], "ready")

        store.enqueue_many([Put("jobs", b"1")], now=NOW)

        assert told(*waiters, other) == [True, True, False]
        assert told(*waiters, other) == [False, False, False]
        assert not asyncio.run(waiters[0].wait_async(0.01))


def test_a_full_fifo_is_no_trouble(store: Store) -> None:
    waiter = store.watch(["jobs"], "ready")
    number = store._questions.numbers(["jobs"])["jobs"]

    for _ in range(70_000):
        store._wakeups.tell({number}, set())

    assert told(waiter) == [True]
    waiter.close()


# --- the files --------------------------------------------------------------------------------
def test_nothing_is_made_before_somebody_waits(store: Store) -> None:
    store.put()
    assert not store.fifo().exists()

    store.watch(["jobs"], "ready").close()

    made = store.fifo().stat().st_mode
    assert (stat.S_ISFIFO(made), stat.S_IMODE(made)) == (True, 0o600)


def test_who_puts_where_nobody_ever_waited_looks_for_no_fifo(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for: list[str] = []
    monkeypatch.setattr(tellers.Tellers, "_is_there", lambda _, key: looked_for.append(key))
    store.put()
    assert not looked_for

    store.watch(["jobs"], "ready").close()
    store.put()

    assert looked_for


def test_who_waits_is_told_by_others_who_had_the_file_open_before(store: Store) -> None:
    with Store(store.path) as other:
        other.put()
        other.take()
        waiter = store.watch(["jobs"], "ready")
        assert told(waiter) == [False]

        other.put()

        assert told(waiter) == [True]
        waiter.close()


def test_a_fifo_that_was_removed_is_noticed_by_both_sides(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tellers, "CHECK_AGAIN", 0.0)
    waiter = store.watch(["jobs"], "ready")
    store.put()
    assert told(waiter) == [True]
    store.take()

    store.fifo().unlink()

    assert told(waiter) == [True], "it opened another one, and has to look"
    assert told(waiter) == [False]
    store.put(b"2")
    assert told(waiter) == [True]
    waiter.close()


def test_who_shares_the_end_of_a_fifo_that_was_removed_moves_on_alone(store: Store) -> None:
    first, second = (store.watch(["jobs"], "ready") for _ in range(2))
    store.fifo().unlink()

    assert told(first) == [True]
    third = store.watch(["jobs"], "ready")
    store.put()

    assert sum(told(first, third)) == 1
    assert told(second) == [True]
    close(first, second, third)


def test_an_ordinary_file_in_its_place_is_left_alone(store: Store) -> None:
    store.fifo().write_bytes(b"precious")

    waiter = store.watch(["jobs"], "ready")
    store.put()

    assert waiter.wait(PATIENCE)
    waiter.close()
    assert store.fifo().read_bytes() == b"precious"


def test_where_no_fifo_can_be_made_a_waiter_looks_often(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no FIFOs here")

    monkeypatch.setattr(os, "mkfifo", refuse)

    waiter = store.watch(["jobs"], "ready")
    assert not isinstance(waiter, FifoWaiter)
    assert waiter.wait(2 * POLL), "it may have missed something of another process"
    assert not waiter.wait(POLL / 2)
    store.put()
    assert waiter.wait(POLL / 2), "this process tells it at once"
    assert asyncio.run(waiter.wait_async(2 * POLL))
    waiter.close()


def test_a_waiter_whose_fifo_cannot_be_opened_again_looks_often_until_it_can(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter = store.watch(["jobs"], "ready")
    with monkeypatch.context() as patched:
        patched.delattr(os, "mkfifo")
        patched.setattr(os, "mkfifo", _no_room, raising=False)
        store.fifo().unlink()

        assert told(waiter) == [True]
        assert waiter.wait(2 * POLL)
        assert asyncio.run(waiter.wait_async(2 * POLL))

    assert waiter.wait(PATIENCE), "opened again: look"
    assert told(waiter) == [False]
    store.put()
    assert told(waiter) == [True]
    waiter.close()


def _no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


# --- descriptors ------------------------------------------------------------------------------
def descriptors() -> list[str]:
    """The FIFOs that this process has open."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        # The listing itself was open when it was made.
        with contextlib.suppress(FileNotFoundError):
            found.append(str(fd.readlink()))
    return [target for target in found if "-run/r" in target]


@ON_LINUX
def test_waiters_of_one_queue_share_a_descriptor_and_leave_none(store: Store) -> None:
    waiters = [store.watch(["jobs"], "ready") for _ in range(100)]
    assert len(descriptors()) == 1

    close(*waiters)

    assert descriptors() == []


@ON_LINUX
def test_a_waiter_that_nobody_closed_leaves_none_either(store: Store) -> None:
    for _ in range(5):
        store.watch(["jobs", "not yet"], "ready")
    assert len(descriptors()) <= 4

    store.watch(["other"], "room").close()
    assert descriptors() == []


@ON_LINUX
def test_a_store_keeps_few_ends_open_to_tell(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tellers, "MOST_OPEN", 3)
    names = [f"queue {number}" for number in range(6)]
    for name in names:
        store.configure(name, {"crash_limit": 7}, now=NOW)
        store.watch([name], "ready").close()

    for _ in range(2):
        for name in names:
            store.put(queue=name)
    assert len(descriptors()) == 3

    waiter = store.watch(names, "ready")
    store.put(queue=names[0])
    assert told(waiter) == [True]
    waiter.close()
    store.close()
    assert descriptors() == []


# --- tasks ------------------------------------------------------------------------------------
def test_one_message_wakes_one_of_many_tasks(store: Store) -> None:
    async def main() -> None:
        waiters = [store.watch(["jobs"], "ready") for _ in range(50)]
        tasks = [asyncio.create_task(waiter.wait_async(PATIENCE)) for waiter in waiters]
        await asyncio.sleep(0)
        for number in range(3):
            store.put(b"%d" % number)
        await asyncio.wait(tasks[:3])
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks[3:])

        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        close(*waiters)

    asyncio.run(main())


def test_a_task_that_leaves_something_tells_a_task(store: Store) -> None:
    async def main() -> None:
        first, second = (store.watch(["jobs"], "ready") for _ in range(2))
        waiting = asyncio.create_task(second.wait_async(PATIENCE))
        told_first = asyncio.create_task(first.wait_async(PATIENCE))
        await asyncio.sleep(0)
        store.put(b"1", b"2")
        done, (left,) = await asyncio.wait(
            [waiting, told_first], return_when=asyncio.FIRST_COMPLETED
        )
        assert len(done) == 1
        store.take()
        close(second if left is told_first else first)

        assert await left
        close(first, second)

    asyncio.run(main())


def test_the_loop_does_not_ask_the_database_what_is_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    is_left = store._questions.is_left

    def ask(what: Literal["ready", "room"], number: int) -> bool:
        asked.append(threading.get_ident())
        return is_left(what, number)

    monkeypatch.setattr(store._questions, "is_left", ask)

    async def main() -> int:
        first, second = (store.watch(["jobs"], "ready") for _ in range(2))
        store.put(b"1", b"2")
        assert await first.wait_async(PATIENCE)
        first.close()
        assert await second.wait_async(PATIENCE)
        store.put(b"3")
        # One that takes tokens away and never has to wait.
        store.watch(["jobs"], "ready").close()
        assert await second.wait_async(PATIENCE)
        second.close()
        return threading.get_ident()

    loop = asyncio.run(main())

    assert len(asked) == 2, "the last one has nobody to tell"
    assert loop not in asked


def test_a_task_that_waits_in_vain_is_told_nothing(store: Store) -> None:
    async def main() -> bool:
        waiter = store.watch(["jobs", "not yet"], "ready")
        try:
            return await waiter.wait_async(0.01)
        finally:
            waiter.close()

    assert not asyncio.run(main())


def test_threads_and_tasks_may_wait_for_the_same_queue(store: Store) -> None:
    async def main() -> None:
        in_a_thread, in_the_loop = (store.watch(["jobs"], "ready") for _ in range(2))
        waits = [
            asyncio.create_task(asyncio.to_thread(in_a_thread.wait, PATIENCE)),
            asyncio.create_task(in_the_loop.wait_async(PATIENCE)),
        ]
        await asyncio.sleep(0)
        store.put(b"1")
        store.put(b"2")
        assert await asyncio.gather(*waits) == [True, True]
        close(in_a_thread, in_the_loop)

    asyncio.run(main())
