"""The main job on the embedded default: enqueue, process with failures and retries, show it all.

    ./run [FOLDER]

The file is data/main_job.sqlite3 beside this repository's README, or in FOLDER. It is made anew by
each run and stays afterwards, to be looked at. Where Java is installed, Spark reads, writes and
works on the same file, and makes tables and a report of it: main_job_lake and main_job.html beside
the file. Without Java that part is left out, see on_spark.py.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import localqueue
from examples.main_job.on_spark import make_tables_and_report, started, work_on_spark
from examples.main_job.shown import heading, table
from localqueue import (
    PersistentQueue,
    PriorityOrdering,
    PublishSubscribeRouting,
    QueueMessage,
    SQLiteQueueStore,
    StaticFanoutSubscriptions,
)
from localqueue.telemetry import Acked, DeadLettered, Event, Leased, Retried
from localqueue.workers import Backoff, Worker, current_message

TRIES = 3
FIRST_DELAY = 0.05

Job = dict[str, Any]
Jobs = PersistentQueue[Job]


# --- the work ------------------------------------------------------------------------------------
class Thumbnails:
    """A handler with the bad days of a real one: some files need a second try, some never work."""

    def __init__(self) -> None:
        self.broken = {"broken.png"}

    def make(self, job: Job) -> None:
        if job["file"] in self.broken:
            raise ValueError(f"{job['file']} is not an image")
        if job["file"] == "slow.png" and current_message().attempt < TRIES:
            raise TimeoutError("the image server did not answer")


def work(queue: Jobs, handler: Thumbnails, threads: int) -> None:
    """Until nothing is left to do, now or later. What fails is tried again, later each time."""
    worker = Worker(
        queue,
        handler.make,
        concurrency=threads,
        max_tries=TRIES,
        backoff=Backoff(first=FIRST_DELAY, jitter=0.0),
        worker_id="thumbnailer",
    )
    summary = worker.run(until_empty=True)
    print(
        f"  {summary.done} done, {summary.failed} failed and tried again, {summary.dead} given up"
    )


class Reporter:
    """Listens to the queue and prints how each attempt ended."""

    def __init__(self, queue: Jobs) -> None:
        self._queue = queue
        self._files: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Leased(message_id=str(message_id)):
                found = self._queue.inspect(message_id)
                self._files[message_id] = found.value["file"] if found is not None else "?"
            case Acked():
                self._say(event, "done")
            case Retried(delay=delay, error_type=error):
                self._say(event, f"failed with {error}, again in {delay:.2f} s")
            case DeadLettered(error_type=error):
                self._say(event, f"given up after {error}")

    def _say(self, event: Event, what: str) -> None:
        file = self._files[event.message_id or ""]
        print(f"  {event.worker}  attempt {event.attempt}  {file:12} {what}")


# --- the steps ------------------------------------------------------------------------------------
def enqueue(queue: Jobs) -> QueueMessage[Job]:
    """Some jobs: plain, delayed, urgent, and one that is put twice. The one that needs retries."""
    queue.put_many([{"file": name} for name in ("cat.png", "dog.png", "broken.png")])
    slow = queue.put({"file": "slow.png"})
    queue.put({"file": "later.png"}, delay=0.3)
    queue.put({"file": "urgent.png"}, priority=9)
    first = queue.put({"file": "logo.png"}, dedupe_key="logo")
    again = queue.put({"file": "logo.png"}, dedupe_key="logo")
    stats = queue.stats()
    print(f"  {stats.ready} ready, {stats.delayed} delayed")
    print(
        f"  logo.png was put twice and is one message: {again.duplicate and again.id == first.id}"
    )
    print(f"  the urgent one comes first: {queue.peek()[0].value['file']}")
    return slow


def give_a_second_chance(queue: Jobs, handler: Thumbnails) -> None:
    for dead in queue.dead_letters():
        error = dead.last_error or {}
        print(
            f"  {dead.value['file']}: {error['type']}: {error['message']}, {dead.attempts} attempts"
        )
        handler.broken.discard(dead.value["file"])
        queue.requeue_dead(dead)
    print("  the file was repaired, so it is requeued:")
    work(queue, handler, threads=1)


def publish(store: SQLiteQueueStore) -> list[PersistentQueue[Any]]:
    orders: PersistentQueue[Any] = PersistentQueue(
        "orders",
        store=store,
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=StaticFanoutSubscriptions(["billing", "audit"]),
    )
    orders.put({"item": "lamp", "price": 40})
    orders.put({"item": "chair", "price": 75})
    billing, audit = orders.subscriber_queue("billing"), orders.subscriber_queue("audit")
    for message in billing.get_messages(10):
        print(f"  billing books {message.value['price']} for a {message.value['item']}")
        billing.ack(message)
    print(f"  audit has not looked yet and still has its own {audit.qsize()}")
    return [billing, audit]


def show_stats(queues: Iterable[PersistentQueue[Any]]) -> None:
    rows = []
    for queue in queues:
        stats = queue.stats()
        leases = ", ".join(f"{name}: {n}" for name, n in sorted(stats.leases_by_worker_id.items()))
        rows.append((queue.name, stats.ready, stats.inflight, stats.dead, stats.total, leases))
    table(("queue", "ready", "inflight", "dead", "total", "leases by worker"), rows)


def show_life(queue: Jobs, message: QueueMessage[Job]) -> None:
    start = message.created_at
    table(
        ("after", "event", "attempt", "worker", "error"),
        (
            (
                f"{event.at - start:.3f} s",
                event.kind,
                event.attempt or "",
                event.worker or "",
                event.error_type or "",
            )
            for event in queue.history(message.id)
        ),
    )


def show_journal(store: SQLiteQueueStore) -> None:
    events = store.journal(limit=10_000)
    print(f"  {len(events)} events, the last eight of them:")
    rows = []
    for event in events[-8:]:
        to = event.to_state or ("gone" if event.from_state else "")
        rows.append((event.queue, event.kind, event.from_state or "", to, event.by))
    table(("queue", "event", "from", "to", "by"), rows)


# --- the run -------------------------------------------------------------------------------------
def new_file(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("main_job.sqlite3", "main_job.sqlite3-wal", "main_job.sqlite3-shm"):
        (folder / name).unlink(missing_ok=True)
    return folder / "main_job.sqlite3"


def main(folder: Path) -> None:
    began = time.perf_counter()
    # What fails here is meant to, and is shown below; the worker would log its traceback too.
    logging.getLogger("localqueue.workers").setLevel(logging.CRITICAL)
    path = new_file(folder)
    store = SQLiteQueueStore(path)
    queue: Jobs = PersistentQueue("thumbnails", store=store, ordering_policy=PriorityOrdering())
    handler = Thumbnails()
    print(f"localqueue {localqueue.__version__}, everything in one file: {path}")

    heading("Enqueue")
    slow = enqueue(queue)
    heading("Process with two threads")
    stop_listening = queue.listen(Reporter(queue))
    work(queue, handler, threads=2)
    heading("Dead letters")
    give_a_second_chance(queue, handler)
    stop_listening()
    heading("Publish and subscribe")
    subscribers = publish(store)

    heading("Result")
    show_stats([queue, *subscribers])
    heading("The life of slow.png")
    show_life(queue, slow)
    heading("Journal")
    show_journal(store)
    heading("Spark")
    with started() as spark:
        if spark is not None:
            work_on_spark(spark, path, store)
            heading("Pipeline")
            make_tables_and_report(spark, path)
    store.close()
    print(f"\ndone in {time.perf_counter() - began:.1f} s; the file is still there: {path}")


if __name__ == "__main__":
    beside_the_readme = Path(__file__).resolve().parents[2] / "data"
    parser = argparse.ArgumentParser(prog="./run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "folder", nargs="?", type=Path, default=beside_the_readme, help="where the file is made"
    )
    main(parser.parse_args().folder)
