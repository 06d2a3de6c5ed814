"""A worker as a process of its own, for tests that send it signals or kill it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers.worker import Worker
from tests.unit.workers.acts import act, act_async


def main(path: str, kind: str, concurrency: str, drain_timeout: str, prefetch: str) -> None:
    store = SQLiteQueueStore(path, durability="relaxed")
    queue = PersistentQueue[Any]("jobs", store=store, lease_timeout=30.0)
    worker = Worker(
        queue,
        act if kind == "thread" else act_async,
        concurrency=int(concurrency),
        drain_timeout=float(drain_timeout),
        prefetch=int(prefetch),
        worker_id="program",
    )
    try:
        summary = asyncio.run(worker.run_async()) if kind == "run_async" else worker.run()
    except KeyboardInterrupt:
        sys.stdout.write("interrupted")
    else:
        sys.stdout.write(str({name: n for name, n in summary.as_dict().items() if n}))


if __name__ == "__main__":
    main(*sys.argv[1:])
