"""Workers whose store is busy or full, or whose commits fail or hang: they go on, or they end."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import StoreBusy, StoreFull
from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers import Summary, Worker, current_message
from tests.unit.workers.phrases import Queue, Stage, eventually, working
from tests.unit.workers.test_commits import Diary, once, put


class Moody(SQLiteQueueStore):
    """Its verbs raise what was planted for them, one after the other, before they work again."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, durability="relaxed", **options)
        self.moods: defaultdict[str, list[Exception]] = defaultdict(list)
        self.calls: Counter[str] = Counter()

    def _meet(self, verb: str) -> None:
        self.calls[verb] += 1
        if self.moods[verb]:
            raise self.moods[verb].pop()


def _moody(verb: str) -> Callable[..., Any]:
    plain: Callable[..., Any] = getattr(SQLiteQueueStore, verb)

    def meet(self: Moody, *arguments: Any, **options: Any) -> Any:
        self._meet(verb)
        return plain(self, *arguments, **options)

    return meet


VERBS = ("lease", "settle_and_lease", "watch", "next_due", "waiting", "end_leases_of")
for _verb in VERBS:
    setattr(Moody, _verb, _moody(_verb))


@pytest.fixture
def moody(tmp_path: Path) -> Iterator[Moody]:
    with Moody(tmp_path / "moody.sqlite3", timeout=0.1) as store:
        yield store


def signs(store: SQLiteQueueStore) -> list[Path]:
    assert store.run_folder is not None
    return list(store.run_folder.glob("alive-*"))


@contextlib.contextmanager
def locked(store: SQLiteQueueStore) -> Iterator[None]:
    """Somebody holds the file's write lock."""
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


# --- the end of a worker ------------------------------------------------------------------------
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_store_that_takes_nothing_does_not_keep_a_worker_from_its_end(
    moody: Moody, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localqueue.workers.settling.LAST_PATIENCE", 0.6)
    queue: Queue = PersistentQueue("jobs", store=moody, lease_timeout=600.0)
    message = queue.put("work")
    began, gate = threading.Event(), threading.Event()

    def handler(value: Any) -> None:
        began.set()
        gate.wait(20)

    worker = Worker(queue, handler, concurrency=concurrency, drain_timeout=0.1).start()
    assert began.wait(20)
    with locked(moody):
        gate.set()
        worker.stop()
        assert worker.join(20)
        assert len(signs(moody)) == 1, "by this others see that its leases are free"

    seen: list[Any] = []
    again = Worker(queue, lambda value: seen.append(current_message().message))
    assert again.run(until_empty=True) == Summary(done=1)
    assert [(one.id, one.crashes) for one in seen] == [(message.id, 0)]
    assert signs(moody) == []


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_full_store_is_asked_a_few_times_a_second_while_a_worker_ends(
    moody: Moody, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localqueue.workers.settling.LAST_PATIENCE", 1.0)
    queue: Queue = PersistentQueue("jobs", store=moody)
    queue.put("work")
    began = threading.Event()

    def handler(value: Any) -> None:
        moody.moods["settle_and_lease"] = [StoreFull("full")] * 1_000_000
        began.set()

    worker = Worker(queue, handler, concurrency=concurrency).start()
    assert began.wait(20)
    worker.stop(now=True)
    assert worker.join(20)

    assert 1 <= moody.calls["settle_and_lease"] <= 10


def test_what_had_ended_when_the_task_was_cancelled_is_settled_though_the_store_is_busy_once(
    moody: Moody,
) -> None:
    queue: Queue = PersistentQueue("jobs", store=moody)
    queue.put_many(range(3))
    ended = asyncio.Event()

    async def handler(value: int) -> None:
        if value < 2:
            return
        moody.moods["settle_and_lease"] = [StoreBusy("busy")]
        ended.set()
        await asyncio.sleep(20)

    async def main() -> Worker:
        worker = Worker(queue, handler, concurrency=3)
        running = asyncio.create_task(worker.run_async())
        await ended.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return worker

    worker = asyncio.run(main())

    assert (worker.summary.done, worker.summary.released) == (2, 1)
    assert (queue.stats().ready, queue.stats().inflight) == (1, 0)
    assert signs(moody) == []


# --- while it runs ------------------------------------------------------------------------------
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("verb", VERBS[:4])
def test_a_store_that_is_busy_once_costs_no_worker(
    moody: Moody, verb: str, concurrency: int
) -> None:
    queue: Queue = PersistentQueue("jobs", store=moody)
    moody.moods[verb] = [StoreBusy("busy")]
    queue.put("work")

    with working(Worker(queue, lambda value: None, concurrency=concurrency)) as worker:
        eventually(lambda: moody.calls[verb] >= 2)
        eventually(lambda: worker.summary.done == 1)


def test_nobody_knows_that_a_queue_is_empty_while_its_store_is_busy(moody: Moody) -> None:
    queue: Queue = PersistentQueue("jobs", store=moody)
    moody.moods["waiting"] = [StoreBusy("busy"), StoreFull("full")]
    queue.put("work")

    assert Worker(queue, lambda value: None).run(until_empty=True) == Summary(done=1)
    assert moody.calls["waiting"] >= 3


# --- commits ------------------------------------------------------------------------------------
class Failing(Diary):
    """Some of its calls raise."""

    def __init__(self, *fails: str) -> None:
        super().__init__()
        self.fails = fails

    def recover(self) -> int:
        super().recover()
        if "recover" in self.fails:
            raise StoreBusy("busy")
        return 0

    def dropped(self, message: QueueMessage[Any]) -> None:
        super().dropped(message)
        if "dropped" in self.fails:
            raise StoreBusy("busy")

    def settled(self, message: QueueMessage[Any]) -> None:
        super().settled(message)
        if "settled" in self.fails:
            raise StoreBusy("busy")


@pytest.mark.parametrize("fails", ["recover", "settled"])
def test_a_commit_that_cannot_tidy_up_now_costs_no_worker(
    stage: Stage, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    diary = Failing(fails)
    queue = stage.queue(delivery_policy=once(diary))
    put(queue)

    assert Worker(queue, lambda value: None).run(until_empty=True) == Summary(done=1)
    assert (fails, None) in diary.lines
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_commit_that_cannot_drop_a_lost_delivery_costs_no_worker(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    diary = Failing("dropped")
    queue = stage.queue(delivery_policy=once(diary), lease_timeout=0.3)
    put(queue, name="lost")
    put(queue, name="next")

    def handler(value: Any) -> None:
        current = current_message()
        if value["name"] == "lost" and current.attempt == 1:
            queue.release(current.message)
            assert current.wait(20)

    with working(Worker(queue, handler)) as worker:
        eventually(lambda: worker.summary.done == 2)
    assert ("dropped", "lost") in diary.lines
    assert worker.summary.lost == 1


class Hanging(Diary):
    """What follows an acknowledgement, or comes at the start, does not end."""

    def __init__(self, hangs: str) -> None:
        super().__init__()
        self.hangs = hangs
        self.gate = threading.Event()

    def settled(self, message: QueueMessage[Any]) -> None:
        super().settled(message)
        if self.hangs == "settled":
            self.gate.wait(20)

    def recover(self) -> int:
        if self.hangs == "recover":
            self.gate.wait(20)
        return super().recover()


@pytest.mark.parametrize("hangs", ["settled", "recover"])
@pytest.mark.parametrize("now", [False, True])
def test_a_worker_ends_in_time_though_a_commit_hangs(stage: Stage, hangs: str, now: bool) -> None:
    diary = Hanging(hangs)
    queue = stage.queue(delivery_policy=once(diary))
    put(queue)
    worker = Worker(queue, lambda value: None, drain_timeout=0.2).start()
    eventually(lambda: worker.summary.done == 1)

    began = time.monotonic()
    worker.stop(now=now)
    assert worker.join(20)
    took = time.monotonic() - began
    diary.gate.set()

    assert took < 10


def test_a_hanging_commit_does_not_keep_others_from_hearing_of_extensions(stage: Stage) -> None:
    diary = Hanging("settled")
    queue = stage.queue(delivery_policy=once(diary), lease_timeout=0.3)
    put(queue, name="hangs")
    put(queue, name="long")
    gate = threading.Event()

    def handler(value: Any) -> None:
        if value["name"] == "long":
            gate.wait(20)

    with working(Worker(queue, handler, drain_timeout=0.1)):
        eventually(lambda: ("settled", "hangs") in diary.lines)
        eventually(lambda: ("extended", "long") in diary.lines)
        gate.set()
    diary.gate.set()


# --- a loop that is blocked ---------------------------------------------------------------------
def test_what_was_leased_ahead_does_not_wait_behind_a_handler_that_blocks_the_loop(
    stage: Stage,
) -> None:
    queue = stage.queue()
    queue.put_many(range(1000))
    blocked, gate = threading.Event(), threading.Event()
    waiting: set[int] = set()

    async def handler(value: int) -> None:
        assert worker._shift is not None
        if len(worker._shift.pending) > 5 and not blocked.is_set():
            waiting.update(message.value for message in worker._shift.pending)
            blocked.set()
            gate.wait(20)

    worker = Worker(queue, handler, concurrency=2)
    with working(worker):
        assert blocked.wait(20)
        others: list[int] = []
        with working(Worker(queue, others.append)):
            eventually(lambda: waiting <= set(others))
            gate.set()
            eventually(lambda: queue.stats().total == 0)
    assert worker.summary.done + len(others) == 1000
    assert worker.summary == Summary(done=worker.summary.done, returned=len(waiting))


def test_a_commit_hears_of_extensions_while_a_handler_blocks_the_loop(stage: Stage) -> None:
    diary = Diary()
    queue = stage.queue(delivery_policy=once(diary), lease_timeout=0.3)
    put(queue)
    heard: list[bool] = []

    async def handler(value: Any) -> None:
        deadline = time.monotonic() + 20
        while ("extended", None) not in diary.lines and time.monotonic() < deadline:
            time.sleep(0.01)  # noqa: ASYNC251 - it blocks the loop
        heard.append(("extended", None) in diary.lines)

    assert Worker(queue, handler).run(until_empty=True) == Summary(done=1)
    assert heard == [True]


# --- several queues -----------------------------------------------------------------------------
def test_a_short_lease_of_one_queue_does_not_shorten_those_of_another(stage: Stage) -> None:
    long = stage.queue("long", lease_timeout=600.0)
    short = stage.queue("short", lease_timeout=0.3)
    message = long.put("work")
    gate = threading.Event()

    def is_extended() -> bool:
        return any(event.kind == "extended" for event in long.history(message.id))

    with working(Worker([long, short], lambda value: gate.wait(20))):
        eventually(is_extended)
        due = stage.store.next_due(["long"])
        assert due is not None
        assert due - long._opened()[1].now() > 500
        gate.set()
