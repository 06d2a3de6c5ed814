"""What a queue does not take, found before the first row of a batch is put."""

from __future__ import annotations

from collections.abc import Mapping

from localqueue.errors import InvalidMessage
from localqueue.spark.write.puts import Facts
from localqueue.stores.protocol import QueueStore
from localqueue.stores.settings import DEFAULT_SETTINGS, QueueSettings


def check_queues(store: QueueStore, facts: Mapping[str, Facts]) -> None:
    """InvalidMessage if a queue, with the settings in force, refuses such rows."""
    for queue, fact in facts.items():
        found = store.settings(queue)
        settings = DEFAULT_SETTINGS if found is None else found[0]
        why = _refusal(settings, fact)
        if why is None and settings.fanout is not None and not store.subscribers(queue):
            why = "publish-subscribe routing requires configured subscribers"
        if why is not None:
            raise InvalidMessage(f"queue {queue!r}: {why}; nothing of this batch was put")


def _refusal(settings: QueueSettings, fact: Facts) -> str | None:
    if fact.priority and settings.ordering != "priority":
        return "priority requires PriorityOrdering"
    if fact.ordering_key and settings.ordering != "per-key":
        return "ordering_key requires OrderingKeys"
    if settings.fanout == "cursor" and (fact.priority or fact.ordering_key or fact.delay):
        return (
            "cursor fan-out delivers in publication order and takes no delay, priority or ordering"
            ' key; use PublishSubscribeRouting(fanout_mode="hybrid")'
        )
    return None
