"""The store that messages are put back into, and what of a lake was its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self

from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.errors import ConfigurationError
from localqueue.spark.options import Options
from localqueue.spark.pipeline.replaying.archive import position_of, stores_in
from localqueue.spark.pipeline.table import Table
from localqueue.spark.read.scan import Source, open_source
from localqueue.spark.read.schema import spark_schema
from localqueue.stores.open import absolute_url, open_store
from localqueue.stores.settings import DEFAULT_SETTINGS


class Target:
    """A store that is there; to be used in ``with``. StoreMissing otherwise, and none is made."""

    def __init__(self, url: str) -> None:
        self._options = Options.parse({"url": absolute_url(url), "content": "journal"})
        self._undo = ExitStack()
        with ExitStack() as undo:
            self._source = undo.enter_context(_source(self._options))
            self.store = open_store(url)
            undo.callback(self.store.close)
            self.when = StoreTime(SYSTEM_CLOCK, self.store.open_clock(SYSTEM_CLOCK))
            self.queues = self.store.queues()
            self._undo = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def subscribers_of(self, topics: Iterable[str]) -> set[str]:
        """The queues that these topics hand out to."""
        return {f"{topic}.{name}" for topic in topics for name in self.store.subscribers(topic)}

    def topic_of(self, queue: str) -> str | None:
        """The topic that hands out to this queue."""
        return next((name for name in self.queues if queue in self.subscribers_of([name])), None)

    def ordering_of(self, queue: str) -> str:
        """What of it the queue takes: a topic whose subscribers read its log takes no places."""
        found = self.store.settings(queue)
        settings = DEFAULT_SETTINGS if found is None else found[0]
        return "fifo" if settings.fanout == "cursor" else settings.ordering

    def check_queues(self, names: Iterable[str]) -> None:
        """ConfigurationError for one that is not there: a typing error must not make a queue."""
        for name in names:
            if name not in self.queues:
                raise ConfigurationError(
                    f"there is no queue {name!r} in {self._options.masked_url}; there are:"
                    f" {', '.join(self.queues) or 'none'}"
                )

    def stores(self, events: Table, wanted: Sequence[str]) -> list[str]:
        """Whose events are replayed: of the stores that are named, or of this one.

        A store that was restored from a backup has its events under several names: in their order.
        """
        there = stores_in(events)
        own = [era.store for era in self._source.eras()]
        found = list(wanted) or [name for name in own if name in there]
        if wanted and {*wanted} <= {*own}:
            found.sort(key=own.index)
        for name in found:
            if name not in there:
                found = []
        if not found:
            asked = "the store " + ", ".join(wanted) if wanted else "this store"
            raise ConfigurationError(
                f"the lake has no events of {asked}; it has those of {', '.join(there) or 'none'}."
                " Run the pipeline first, or name a store of the lake"
            )
        return found

    def are_in_turn(self, stores: Sequence[str]) -> bool:
        """Whether they are one store, and each name follows the one before it."""
        own = {era.store for era in self._source.eras()}
        return len(stores) == 1 or {*stores} <= own

    def behind(self, events: Table, queues: Collection[str], until: datetime) -> int:
        """How many events of these queues before a moment the lake does not have yet."""
        missing = 0
        for queue in queues:
            if queue not in self.queues:
                continue
            with _source(replace(self._options, queues=(queue,))) as source:
                end = source.journal_at(until.timestamp())
                for era in reversed(source.eras()):
                    reached = position_of(events, era.store, queue)
                    after = end if reached is None else max(reached, era.first - 1)
                    missing += source.journal_count(after, end) if end > after else 0
                    end = min(end, era.first - 1)
        return missing


def _source(options: Options) -> Source:
    schema = spark_schema(options)
    assert not isinstance(schema, str)
    return open_source(options, schema)
