"""What a sink remembers of a batch, in the store itself: so that each of its rows is put once.

A batch that is more than one transaction has a record with its files and with how many of their
rows are put; the record changes with each transaction that puts some. So whoever comes after a
crash goes on there, and of two who try at once one is refused. The batches of a query come one
after the other, so the last one's record is enough: an older one cannot come back, unless its
checkpoint was. Jobs that name their batches themselves have a record for each.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum, auto
from typing import Any
from urllib.parse import quote

from localqueue.clock import StoreTime
from localqueue.errors import ConfigurationError, StoreCorrupt
from localqueue.spark.write.puts import Facts
from localqueue.spark.write.staged_rows import StagedFile
from localqueue.stores.protocol import QueueStore
from localqueue.stores.records import RecordChange

KIND = "spark-sink"
QUERY_IS_KEPT = 366 * 86_400.0
"""How long the last batch of a query is remembered that writes no more."""
JOB_IS_KEPT = 30 * 86_400.0
"""How long a finished batch of a job is: a rerun after that puts its rows again."""


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """One batch of one sink, and who writes it."""

    sink: str
    batch: str
    query: str | None = None
    """The id of the streaming query, as far as its tasks know one."""
    run: str | None = None
    """Which start of that query it is."""
    in_sequence: bool = False
    """Whether batches are numbered, one after the other, by a query."""
    rows: int = 0
    digest: int = 0

    @property
    def key(self) -> str:
        return self.sink if self.in_sequence else f"{quote(self.sink, safe=':')}/{self.batch}"

    def with_rows(self, facts: Mapping[str, Facts]) -> SinkBatch:
        known = sorted((queue, fact.rows, fact.digest) for queue, fact in facts.items())
        rows = sum(fact.rows for fact in facts.values())
        return replace(self, rows=rows, digest=zlib.crc32(json.dumps(known).encode()))


@dataclass(frozen=True, slots=True)
class Entry:
    """The record of a batch. ``done`` of its ``rows`` are put, in the order of the files."""

    batch: str
    query: str | None
    run: str | None
    rows: int
    digest: int
    done: int = 0
    location: str = ""
    """Of the files, without a password."""
    queue: str | None = None
    """Where rows go that do not say it themselves."""
    dedupe_window: float = 0.0
    files: tuple[StagedFile, ...] = ()
    version: int = 0

    @property
    def is_finished(self) -> bool:
        return self.done >= self.rows


class Verdict(Enum):
    """What is to be done with a batch, given what is recorded."""

    NEW = auto()
    """Nobody has begun it."""
    GO_ON = auto()
    """It was begun: its recorded rows count, not the ones that were made again."""
    DONE = auto()
    GO_ON_WITH_OLDER = auto()
    """An older batch was left half-way; its rows come first."""


def judge(entry: Entry | None, batch: SinkBatch) -> Verdict:
    """Decide; ConfigurationError where going on could lose rows or put some twice."""
    if entry is None:
        return Verdict.NEW
    if batch.in_sequence:
        return _judge_sequence(entry, batch)
    return Verdict.DONE if entry.is_finished else Verdict.GO_ON


def _judge_sequence(entry: Entry, batch: SinkBatch) -> Verdict:
    if entry.query and batch.query and entry.query != batch.query:
        raise ConfigurationError(
            f"{_called(batch.sink)} belongs to another query: its checkpoint was lost or replaced,"
            " or two queries write under one name. Rows of this batch may be in the queue already,"
            " and nothing was put. Give this query a sinkId of its own to put them"
        )
    number, last = int(batch.batch), int(entry.batch)
    if number > last:
        return Verdict.NEW if entry.is_finished else Verdict.GO_ON_WITH_OLDER
    if number < last:
        raise ConfigurationError(
            f"{_called(batch.sink)} has batch {last} already and is given batch {number}: the"
            " checkpoint was restored or edited. Rows of this batch may be in the queue already,"
            " and nothing was put. Start the query with a new checkpoint, or with another sinkId,"
            " to put them"
        )
    if entry.run and entry.run == batch.run and entry.digest != batch.digest:
        # Another run makes the batch anew, and may make other values; the same run does not.
        raise ConfigurationError(
            f"batch {number} of {_called(batch.sink)} was written with {entry.rows:,} other rows"
            " before; give each write of a foreachBatch function a sinkId of its own. Nothing was"
            " put"
        )
    return Verdict.DONE if entry.is_finished else Verdict.GO_ON


def check_the_same(entry: Entry, batch: SinkBatch, went_on: bool) -> None:
    """When a batch is put: ConfigurationError if rows of this run were left out that are others.

    Whoever went on with a batch may have made other values: its recorded rows count. One that was
    found done has to be the very same rows, since it could be another batch of the same name: of a
    query whose checkpoint was lost or restored, of a second write in one function, of another job.
    """
    if went_on:
        other = entry.rows != batch.rows and not batch.in_sequence
    else:
        other = entry.digest != batch.digest
    if not other:
        return
    written = (
        f"batch {batch.batch!r} of {_called(batch.sink)} was written with {entry.rows:,} rows,"
        f" which are put; the {batch.rows:,} of this run are others and are not."
    )
    if batch.in_sequence:
        raise ConfigurationError(
            f"{written} Give each write of a foreachBatch function a sinkId of its own. Where there"
            " is one write only, the checkpoint was restored or edited, or rows are made that"
            " differ from run to run: another sinkId puts those of this run"
        )
    raise ConfigurationError(
        f"{written} Give them a batchId of their own. In a query whose checkpoint was lost, give a"
        " sinkId of its own"
    )


def lost_files(entry: Entry, batch: SinkBatch, why: object) -> StoreCorrupt:
    """What is to be said when a recorded batch cannot go on."""
    left = entry.rows - entry.done
    again = f", {entry.done:,} of them for the second time" if entry.done else ""
    return StoreCorrupt(
        f"batch {entry.batch!r} of {_called(batch.sink)} cannot go on: {why}. {left:,} of its"
        f" {entry.rows:,} rows are not put. Bring its {len(entry.files):,} files back to"
        f" {entry.location}; where they are lost, write the batch with another sinkId, which puts"
        f" all its rows{again}"
    )


def _called(sink: str) -> str:
    kind, _, name = sink.partition(":")
    return f"the sink of checkpoint {name}" if kind == "checkpoint" else f"sinkId {name!r}"


class SinkLedger:
    """The record of one batch in a store."""

    def __init__(self, store: QueueStore, when: StoreTime, batch: SinkBatch) -> None:
        self._store = store
        self._when = when
        self._key = batch.key
        self._ttl = QUERY_IS_KEPT if batch.in_sequence else JOB_IS_KEPT

    def load(self) -> Entry | None:
        record = self._store.load_record(KIND, self._key, now=self._when.now)
        return None if record is None else _read(record.value, record.version)

    def change(self, entry: Entry) -> RecordChange:
        """What writes this entry over the version that it has."""
        # Unfinished ones stay: their files wait for somebody who goes on.
        ttl = self._ttl if entry.is_finished else None
        return RecordChange(KIND, self._key, _written(entry), expect=entry.version, ttl=ttl)

    def record(self, entry: Entry) -> Entry:
        """Write it; the entry with its new version. RecordConflict if somebody was faster."""
        [version] = self._store.change_records([self.change(entry)], now=self._when.now)
        return replace(entry, version=version)

    def tidy(self) -> None:
        """Forget finished batches that nobody will ask for again."""
        self._store.prune_records(KIND, now=self._when.now)


def unfinished_files(store: QueueStore, when: StoreTime) -> set[str]:
    """The names of all files that a batch still needs."""
    names: set[str] = set()
    after = ""
    while page := store.scan_records(KIND, after=after, now=when.now):
        for record in page:
            entry = _read(record.value, record.version)
            if not entry.is_finished:
                names |= {file.name for file in entry.files}
        after = page[-1].key
    return names


def _written(entry: Entry) -> bytes:
    fields = asdict(entry)
    del fields["version"]
    return json.dumps(fields, separators=(",", ":")).encode()


def _read(value: bytes, version: int) -> Entry:
    fields: dict[str, Any] = json.loads(value)
    files = tuple(StagedFile(**file) for file in fields.pop("files"))
    return Entry(**fields, files=files, version=version)
