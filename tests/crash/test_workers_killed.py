"""Worker processes that are killed at any moment, stopped for longer than their leases, or aborted.

Proven: every message has its effect and none is lost; it has it again only where a lease has ended,
and with effectively-once never; what was only prefetched is not charged; a worker that was stopped
cannot end what others have now; a message that kills its workers is set aside. Each proof is
repeated with a defect planted in the workers, and fails.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.idempotency.records import IdempotencyRecords
from localqueue.policies.crash_limit import DEFAULT_CRASH_LIMIT as CRASH_LIMIT
from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import JournalEvent
from localqueue.testing import check_history
from localqueue.workers.worker import Worker
from tests.crash.diary import read
from tests.crash.killings import WORK, Killings
from tests.crash.reckoning import Broken, Reckoning, read_journal
from tests.crash.working import (
    CONCURRENCY,
    EFFECTS,
    SHORT_LEASE,
    Queue,
    job,
    open_queue,
)
from tests.faults.nursery import PATIENCE, Child, Nursery

SHORT = (2000, 12)
LONG = (10_000, 200)
"""Messages and kills."""
EVERY_DAY = (("thread", "full"), ("asyncio", "full"), ("process", "relaxed"))
WAYS = [
    pytest.param(kind, durability, size, id=f"{kind}-{durability}-{size[1]}-kills", marks=marks)
    for kind in ("thread", "asyncio", "process")
    for durability in ("full", "relaxed")
    for size, marks in ((SHORT, ()), (LONG, pytest.mark.long))
    # Short forms are for every day: one of each is enough.
    if size == LONG or (kind, durability) in EVERY_DAY
]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


# --- killed at random moments -------------------------------------------------------------------
@pytest.mark.parametrize(("kind", "durability", "size"), WAYS)
def test_whoever_is_killed_every_message_is_handled_and_again_only_after_a_lease_ended(
    nursery: Nursery, tmp_path: Path, kind: str, durability: str, size: tuple[int, int]
) -> None:
    messages, kills = size
    with Killings(nursery, tmp_path, seed=kills, kind=kind, durability=durability) as killings:
        put = killings.put(messages)

        killings.drain(messages, kills)

        reckoning = killings.reckon(put)
        reckoning.check(killings.killed)
        assert killings.queue.stats().total == 0
        assert len(killings.killed) == kills
        # They came at bad moments: handlers were cut off, and no more of them than there were.
        assert 0 < reckoning.charged.total() <= kills * CONCURRENCY
        assert reckoning.ended_leases > reckoning.charged.total(), "nothing was prefetched"


@pytest.mark.parametrize(
    "size", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["12-kills", "200-kills"]
)
@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_with_effectively_once_no_effect_is_there_twice_whoever_is_killed(
    nursery: Nursery, tmp_path: Path, kind: str, size: tuple[int, int]
) -> None:
    messages, kills = size
    delivery = "effectively-once"
    with Killings(nursery, tmp_path, seed=kills, kind=kind, delivery=delivery) as killings:
        put = killings.put(messages)

        killings.drain(messages, kills)

        killings.reckon(put).check(killings.killed)
        assert killings.queue.stats().total == 0
        check_effects(killings, put)


def check_effects(killings: Killings, put: list[str]) -> None:
    """A follow-up for each message, and its kept result, both of the delivery that was acked."""
    acked = {
        event.message_id: event.attempt
        for event in read_journal(killings.queue.store)
        if event.kind == "acked"
    }
    effects: Queue = PersistentQueue(EFFECTS, store=killings.queue.store)
    found = [message.value for message in effects.get_messages(10_000)]
    if len(found) < len(put):
        found += [message.value for message in effects.get_messages(10_000)]
    for id, times in Counter(id for id, _ in found).items():
        if times > 1:
            raise Broken(f"message {id} has its effect {times} times")
    ledger = IdempotencyRecords.of(killings.queue.store)
    assert dict(found) == acked
    for number, id in enumerate(put):
        record = ledger.load(f"jobs:{number}")
        assert record is not None
        assert record.metadata["result"] == acked[id]


@pytest.mark.parametrize(
    ("delivery", "defect", "told"),
    [
        ("at-most-once", None, "was never handled"),
        ("at-least-once", "EndsLeasesAtOnce", "lost a lease and lived"),
        ("at-least-once", "runs_handlers_twice", "was handled 2 times"),
        ("at-least-once", "charges_prefetched", "was charged"),
        ("effects before the ack", None, r"has its effect \d times"),
    ],
)
def test_a_defect_in_the_workers_is_caught(
    nursery: Nursery, tmp_path: Path, delivery: str, defect: str | None, told: str
) -> None:
    with pytest.raises(Broken, match=told):
        _kill_until_it_is_seen(nursery, tmp_path, delivery, defect)


def _kill_until_it_is_seen(
    nursery: Nursery, folder: Path, delivery: str, defect: str | None
) -> None:
    """Of few kills not every one comes at a bad moment."""
    # Leases that end at once are seen at once, and without end.
    messages, kills = (50, 1) if defect == "EndsLeasesAtOnce" else (500, 6)
    for seed in range(20):
        place = folder / str(seed)
        place.mkdir()
        with Killings(nursery, place, seed=seed, delivery=delivery, defect=defect) as killings:
            put = killings.put(messages)
            killings.drain(messages, kills)
            killings.reckon(put).check(killings.killed)
            if delivery == "effects before the ack":
                check_effects(killings, put)


# --- stopped for longer than its lease ----------------------------------------------------------
@pytest.mark.parametrize("kind", ["thread", "asyncio", "process"])
def test_a_worker_that_was_stopped_cannot_end_the_lease_that_another_has_now(
    tmp_path: Path, kind: str
) -> None:
    stopped, events = stop_and_go_on(tmp_path, kind)

    assert stopped == {"done": 1, "lost": 1}
    assert check_history(events) == []
    life = [event for event in events if event.message_id == events[0].message_id]
    assert [(event.kind, event.attempt, event.worker) for event in life] == [
        ("enqueued", None, None),
        ("leased", 1, "stopped"),
        ("lease_expired", 1, "stopped"),
        ("leased", 2, "other"),
        ("acked", 2, "other"),
    ]


def test_a_stale_receipt_that_is_taken_is_caught(tmp_path: Path) -> None:
    stopped, _ = stop_and_go_on(tmp_path, "thread", "takes_stale_receipts")

    assert stopped == {"done": 2}


def stop_and_go_on(
    folder: Path, kind: str, defect: str | None = None
) -> tuple[dict[str, int], list[JournalEvent]]:
    """A worker is stopped in a handler, another one takes over, and both go on.

    What the first one did, and what was written down but for the heartbeats.
    """
    path = str(folder / "queue.sqlite3")
    queue = open_queue(path, "relaxed", lease_timeout=SHORT_LEASE)
    begun, may_end = threading.Event(), threading.Event()

    def take_over(value: Any) -> None:
        begun.set()
        assert may_end.wait(PATIENCE)

    with Child("tests.crash.working:work_and_stop", path, kind, defect) as stopped:
        pid = stopped.hear()
        queue.put({"job": "stop", "kind": kind})
        stopped.wait_until_stopped()
        with Worker(queue, take_over, worker_id="other"):
            assert begun.wait(PATIENCE), "the lease of the stopped one did not end"
            stopped.go_on()
            assert stopped.hear() == "stop"
            # The other one is busy: only who goes on can have this, after it has settled the first.
            queue.put({"job": "next"})
            assert stopped.hear() == "next"
            may_end.set()
        os.kill(pid, signal.SIGTERM)
        summary = stopped.hear()
        stopped.wait()
    events = [e for e in read_journal(queue.store) if e.message_id and e.kind != "extended"]
    queue.store.close()
    return {name: count for name, count in summary.items() if count}, events


# --- poison -------------------------------------------------------------------------------------
INNOCENT = 60
POISON = {"poison": True}


@pytest.mark.parametrize(
    ("kind", "deaths"), [("thread", CRASH_LIMIT), ("asyncio", CRASH_LIMIT), ("process", 0)]
)
def test_a_message_that_aborts_its_process_is_set_aside_and_all_others_are_handled(
    nursery: Nursery, tmp_path: Path, kind: str, deaths: int
) -> None:
    queue = open_queue(str(tmp_path / "queue.sqlite3"), "relaxed")
    diary = tmp_path / "diary"
    innocent = [queue.put(job(diary, 0.1, 0.01)).id for _ in range(INNOCENT // 2)]
    poison = queue.put(POISON).id
    innocent += [queue.put(job(diary, 0.1, 0.01)).id for _ in range(INNOCENT // 2)]

    killed = drain_poisoned(nursery, tmp_path, kind)

    assert len(killed) == deaths
    [dead] = queue.dead_letters()
    assert (dead.id, dead.crashes, dead.failures) == (poison, CRASH_LIMIT, 0)
    assert queue.stats().total == 1
    reckoning = Reckoning(innocent, read(diary), read_journal(queue.store))
    reckoning.check(killed)
    assert not reckoning.charged
    queue.store.close()


def test_poison_that_nobody_counts_is_caught(nursery: Nursery, tmp_path: Path) -> None:
    queue = open_queue(str(tmp_path / "queue.sqlite3"), "relaxed")
    queue.put(POISON)
    queue.store.close()

    with pytest.raises(Broken, match="one worker after the other"):
        drain_poisoned(nursery, tmp_path, "thread", "hides_what_runs")


def drain_poisoned(
    nursery: Nursery, folder: Path, kind: str, defect: str | None = None
) -> list[str]:
    """Start a worker again and again until one comes to the end; those that did not."""
    aborted: list[str] = []
    while True:
        name = f"worker-{len(aborted)}"
        given = [str(folder / "queue.sqlite3"), str(folder / "diary"), "relaxed", kind]
        status = nursery.run(WORK, *given, "at-least-once", name, defect, True)
        if status == 0:
            return aborted
        assert status == -signal.SIGABRT
        aborted.append(name)
        if len(aborted) > CRASH_LIMIT:
            raise Broken("it takes down one worker after the other")
