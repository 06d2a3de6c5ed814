"""How far a lake is: behind which store by how many events, and when it last moved."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from localqueue.spark.options import Options
from localqueue.spark.pipeline.events import EVENTS, STORE_DIGITS
from localqueue.spark.pipeline.feeds import PROPERTY
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.places import Feed, Place, reached
from localqueue.spark.pipeline.report.reading import bounds
from localqueue.spark.pipeline.report.table_facts import TableFacts, tables_of
from localqueue.spark.pipeline.table import Table
from localqueue.spark.read.offsets import SHARD
from localqueue.spark.read.scan import open_source
from localqueue.spark.read.schema import spark_schema
from localqueue.stores.open import absolute_url, open_store

GROUPS = "pipeline:"


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """Queues of a store that come to the lake together."""

    queues: tuple[str, ...]
    """All of them when none is named."""
    position: int
    """Up to which seq the lake has their events."""
    lag: int
    """How many of their events it does not have yet."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A consumer group of a pipeline: the journal is kept from its position on."""

    name: str
    position: int
    moved_at: datetime


@dataclass(frozen=True, slots=True)
class StoreStatus:
    store: str
    journal_end: int
    feeds: list[FeedStatus]
    groups: list[GroupStatus]


@dataclass(frozen=True, slots=True)
class Status:
    tables: list[TableFacts]
    last_batch_at: datetime | None
    """When ``events`` was last written to."""
    newest_event_at: datetime | None
    store: StoreStatus | None


def status_of(lake: Lake, store_url: str | None = None) -> Status:
    """The lake alone, or with a store: then also what is between them. Nothing is changed."""
    events = lake.table(EVENTS.name)
    tables = tables_of(lake)
    written = next((table.changed_at for table in tables if table.name == EVENTS.name), None)
    limits = bounds(events, EVENTS.moment) if events is not None else None
    return Status(
        tables=tables,
        last_batch_at=written,
        newest_event_at=None if limits is None else datetime.fromtimestamp(limits[1], UTC),
        store=None if store_url is None else _store(events, store_url),
    )


def lag_of(lake: Lake, store_url: str, queues: tuple[str, ...] = ()) -> int:
    """How many events of these queues, or of all, the lake does not have yet."""
    events = lake.table(EVENTS.name)
    _, _, (feed,) = _feeds(events, store_url, [queues])
    return feed.lag


def _store(events: Table | None, url: str) -> StoreStatus:
    store, end, feeds = _feeds(events, url, None)
    return StoreStatus(store, end, feeds, _groups(url))


def _feeds(
    events: Table | None, url: str, wanted: list[tuple[str, ...]] | None
) -> tuple[str, int, list[FeedStatus]]:
    """The store's name, the end of its journal, and its feeds: those wanted, or those there."""
    url = absolute_url(url)
    options = Options.parse({"url": url, "content": "journal"})
    schema = spark_schema(options)
    assert not isinstance(schema, str)
    with open_source(options, schema) as source:
        store, eras, end = source.store_id[:STORE_DIGITS], source.eras(), source.journal_end()
    if wanted is None:
        wanted = _known(events, store) or [()]
    found = []
    for queues in wanted:
        position = 0 if events is None else reached(eras, _positions(events, Feed(queues)))
        chosen = {"queue": ",".join(queues)} if queues else {}
        some = Options.parse({"url": url, "content": "journal", **chosen})
        with open_source(some, schema) as source:
            oldest = max(position, source.journal_oldest())
            lag = source.journal_count(oldest, end) if oldest < end else 0
        found.append(FeedStatus(queues, position, lag))
    return store, end, found


def _positions(events: Table, feed: Feed) -> Callable[[str], int]:
    return lambda name: events.position(feed, Place(name, SHARD))


def _known(events: Table | None, store: str) -> list[tuple[str, ...]]:
    text = events.properties.get(PROPERTY + store, "[]") if events is not None else "[]"
    return [tuple(queues) for queues in json.loads(text)]


def _groups(url: str) -> list[GroupStatus]:
    store = open_store(url)
    try:
        readers = store.readers()
    finally:
        store.close()
    return [
        GroupStatus(
            reader.name,
            # A position ends with its seq, as 16 hex digits.
            int(reader.position[STORE_DIGITS:], 16),
            datetime.fromtimestamp(reader.updated_at, UTC),
        )
        for reader in readers
        if reader.name.startswith(GROUPS)
    ]
