"""Consumer groups of a store: how far each has read its journal, and taking one away.

The journal is kept for a group from its position on, until its ``kept_for`` is over. So a group
that nobody reads with any more holds up to that much of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.errors import (
    ConfigurationError,
    InvalidArgument,
    JournalTrimmed,
    UnsupportedByStore,
)
from localqueue.spark.leadership import Leadership, leader_file
from localqueue.spark.options import Options
from localqueue.spark.read.scan import Source, open_source
from localqueue.spark.read.schema import spark_schema
from localqueue.spark.stream.consumer_group import RECORD
from localqueue.stores.open import absolute_url, open_store
from localqueue.stores.protocol import JournalReader, QueueStore
from localqueue.stores.records import RecordChange

try:
    import fcntl
except ImportError:  # Windows: who reads cannot be told there.
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Group:
    """A reader that is registered with the store: a pipeline's, a stream's, or anybody's."""

    name: str
    position: int
    """The seq up to which it has the journal."""
    lag: int
    """How many events, of all queues, came after that."""
    moved_at: datetime
    age: float
    """Seconds since then."""
    kept_for: float
    """Seconds for which events are kept for it, after they happened."""
    oldest_at: datetime | None
    """When the oldest event happened that it has not read; None when it has all."""
    is_running: bool | None
    """Whether a query of this host reads with it now; None when that cannot be told."""


def groups(store_url: str) -> list[Group]:
    """All groups of a store, by name. StoreMissing when there is none; nothing is changed."""
    with _opened(store_url) as (store, source, when):
        return [_group(reader, store, source, when) for reader in store.readers()]


def remove_group(store_url: str, name: str) -> Group:
    """Take a group away, so that nothing is kept for it any more; what it was.

    InvalidArgument when there is none of this name, ConfigurationError while somebody reads with
    it. A query that begins with this name later starts as its options say.
    """
    with _opened(store_url) as (store, source, when):
        readers = {reader.name: reader for reader in store.readers()}
        if name not in readers:
            raise InvalidArgument(
                f"there is no consumer group {name!r}; there are: {', '.join(readers) or 'none'}"
            )
        found = _group(readers[name], store, source, when)
        with _nobody_reads(store, name):
            store.drop_reader(name)
            store.change_records([RecordChange(RECORD, name, None)], now=when.now)
        return found


def _group(reader: JournalReader, store: QueueStore, source: Source, when: StoreTime) -> Group:
    position, end = source.seq_of(reader.position), source.journal_end()
    # What was trimmed is nobody's lag.
    first = max(position, source.journal_oldest())
    lag = source.journal_count(first, end) if first < end else 0
    return Group(
        reader.name,
        position,
        lag,
        _moment(reader.updated_at),
        max(0.0, when.now() - reader.updated_at),
        reader.max_age,
        _oldest_unread(store, source, first) if lag else None,
        _is_led(store.run_folder, reader.name),
    )


def _oldest_unread(store: QueueStore, source: Source, after: int) -> datetime:
    try:
        events = store.journal(after=source.position(after), limit=1)
    except JournalTrimmed:
        # Some of what it has not read is gone, so the oldest of all is not read either.
        events = store.journal(limit=1)
    return _moment(events[0].at)


def _is_led(folder: Path | None, name: str) -> bool | None:
    if folder is None or fcntl is None:
        return None
    try:
        file = os.open(leader_file(folder, name), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@contextmanager
def _nobody_reads(store: QueueStore, name: str) -> Iterator[None]:
    """Inside, no query of this name begins; one that has just ended is waited for."""
    leadership: Leadership | None = None
    try:
        leadership = Leadership(store, name)
    except UnsupportedByStore:
        pass
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the consumer group {name!r} is being read with; stop its query first"
        ) from error
    try:
        yield
    finally:
        if leadership is not None:
            leadership.close()


@contextmanager
def _opened(url: str) -> Iterator[tuple[QueueStore, Source, StoreTime]]:
    options = Options.parse({"url": absolute_url(url), "content": "journal"})
    schema = spark_schema(options)
    assert not isinstance(schema, str)
    # First to look: a store that is not there is not made.
    with open_source(options, schema) as source:
        store = open_store(url)
        try:
            yield store, source, StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK))
        finally:
            store.close()


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
