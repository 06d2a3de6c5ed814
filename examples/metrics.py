"""What Prometheus is shown of a queue that was drained. Needs the extra ``metrics``.

python examples/metrics.py
"""

from __future__ import annotations

import logging

from localqueue import MemoryQueueStore, PersistentQueue
from localqueue.workers import Worker

try:
    from prometheus_client import CollectorRegistry, generate_latest

    from localqueue.telemetry.prometheus import Collector
except ImportError:
    raise SystemExit("this example needs the extra: pip install 'localqueue[metrics]'") from None


def handle(number: int) -> None:
    if number == 3:
        raise ValueError("not this one")


def main() -> None:
    store = MemoryQueueStore()
    first: PersistentQueue[int] = PersistentQueue("first", store=store)
    second: PersistentQueue[str] = PersistentQueue("second", store=store)
    registry = CollectorRegistry()  # without registry= it is the usual one, for start_http_server
    collector = Collector([first], registry=registry)
    collector.add(second)  # a registry has one Collector, for all queues

    first.put_many(range(5))
    second.put("waits")
    Worker(first, handle, max_tries=1).run(until_empty=True)

    for line in generate_latest(registry).decode().splitlines():
        if line.startswith(("localqueue_events_total", "localqueue_errors", "localqueue_messages")):
            print(line)
    collector.close()
    store.close()


if __name__ == "__main__":
    logging.disable()  # that a handler failed is a warning with a traceback
    main()
