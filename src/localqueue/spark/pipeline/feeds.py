"""Which queues of which store come to a lake: kept with ``events``, so that none comes twice.

Two pipelines may bring the same queues: they share their positions, and add nothing twice. Or they
bring different ones. If only some of their queues were the same, these would be there twice.
"""

from __future__ import annotations

import json

from localqueue.errors import ConfigurationError, StoreBusy
from localqueue.spark.pipeline.places import Feed
from localqueue.spark.pipeline.table import Table

PROPERTY = "localqueue.feed."
ALL = "all queues"
TRIES = 20


def claim(events: Table, feed: Feed, store: str) -> None:
    """This feed comes to the lake; ConfigurationError when some of it comes by another one."""
    ours = sorted(feed.queues)
    for _ in range(TRIES):
        known: list[list[str]] = json.loads(events.properties.get(PROPERTY + store, "[]"))
        if ours in known:
            return
        for theirs in known:
            if not ours or not theirs or set(ours) & set(theirs):
                raise ConfigurationError(
                    f"the lake has the events of {_names(theirs)} of the store {store}, and this"
                    f" pipeline would bring those of {_names(ours)}: some would be there twice."
                    " Choose the same queues, others, or another lake"
                )
        if events.set_property(PROPERTY + store, json.dumps([*known, ours])):
            return
    raise StoreBusy(f"the table {events.name} is changed by others all the time; run again")


def _names(queues: list[str]) -> str:
    return ", ".join(queues) if queues else ALL
