"""What a message may ask of its queue's order; the row decides, for every process alike."""

from __future__ import annotations

from localqueue.errors import InvalidMessage
from localqueue.stores.protocol import Put
from localqueue.stores.settings import QueueSettings


def check_order(settings: QueueSettings, put: Put) -> None:
    if put.priority and settings.ordering != "priority":
        raise InvalidMessage("priority requires PriorityOrdering")
    if put.ordering_key is not None and settings.ordering != "per-key":
        raise InvalidMessage("ordering_key requires OrderingKeys")
