"""The driver's part of a write: the rows that tasks left become messages, each of them once.

Rows that fit one transaction are put together with the record of their batch. More rows are in
files first; then a record names the files, and each transaction puts some rows and says so in the
record. A driver may be killed anywhere: whoever writes the batch again goes on behind what is put,
with the files that were recorded; and of several at once each transaction is one's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from queue import Full
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from localqueue import failpoints
from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.errors import LocalQueueError, RecordConflict, StoreCorrupt
from localqueue.spark.options import Options
from localqueue.spark.write.portions import Portion, chunks
from localqueue.spark.write.puts import Facts, make_puts
from localqueue.spark.write.queue_rules import check_queues
from localqueue.spark.write.sink_ledger import (
    Entry,
    SinkBatch,
    SinkLedger,
    Verdict,
    check_the_same,
    judge,
    lost_files,
    unfinished_files,
)
from localqueue.spark.write.staged_rows import (
    RowsOut,
    StagedFile,
    check_file,
    rows_in_file,
    rows_in_message,
)
from localqueue.spark.write.staging import Folder, LocalFolder, folder_at, staging_location
from localqueue.stores.masking import masked
from localqueue.stores.open import open_store
from localqueue.stores.protocol import LARGEST_BATCH, LARGEST_BATCH_BYTES, Put, QueueIsFull
from localqueue.stores.records import RecordChange


@dataclass(frozen=True, slots=True)
class Part:
    """The rows that one task left, as bytes or in a file."""

    rows: bytes | StagedFile
    facts: dict[str, Facts]


class Sink:
    """Puts batches into a store; to be used in ``with``."""

    def __init__(self, options: Options, queue: str | None, prefix: str) -> None:
        """``queue`` is where rows go that do not say it themselves.

        ``prefix`` is how the names of files begin that are made here.
        """
        self._options = options
        self._queue = queue
        self._prefix = prefix
        self._location = staging_location(options)
        self._folder = folder_at(self._location, ours=options.staging_directory is None)
        self._store = open_store(options.url)

    def __enter__(self) -> Self:
        try:
            self._when = StoreTime(SYSTEM_CLOCK, self._store.open_clock(SYSTEM_CLOCK))
        except BaseException:
            self._store.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._store.close()

    def put(self, parts: Sequence[Part], batch: SinkBatch | None, prefixes: Collection[str]) -> int:
        """Put all rows in the order of the parts, with a batch exactly once; how many are new.

        ``prefixes`` are how the names of files begin that tasks of this write may have left: they
        go as well, whether they were counted or not.
        """
        if batch is None:
            put = self._put_unrecorded(parts)
        else:
            put = self._put_recorded(parts, batch.with_rows(together(parts)))
        self._folder.remove(self._leftovers(prefixes))
        self._remove_old_files()
        return put

    def abandon(self, prefixes: Collection[str]) -> None:
        """The write failed: remove its files, but none that a recorded batch needs."""
        needed = unfinished_files(self._store, self._when)
        self._folder.remove(self._leftovers(prefixes) - needed)

    # --- rows that nobody will bring again -------------------------------------------------------
    def _put_unrecorded(self, parts: Sequence[Part]) -> int:
        check_queues(self._store, together(parts))
        for part in parts:
            if isinstance(part.rows, StagedFile):
                check_file(self._folder, part.rows)
        rows = (batch for part in parts for batch in self._rows(part.rows))
        progress = _Unrecorded(sum(fact.rows for fact in together(parts).values()))
        self._put_all(rows, self._queue, self._options.dedupe_window, progress)
        return progress.done

    # --- a batch that may come again -------------------------------------------------------------
    def _put_recorded(self, parts: Sequence[Part], batch: SinkBatch) -> int:
        ledger = SinkLedger(self._store, self._when, batch)
        put = 0
        went_on = False
        while True:
            entry = ledger.load()
            verdict = judge(entry, batch)
            went_on |= verdict is Verdict.GO_ON
            try:
                if verdict is Verdict.NEW:
                    entry = self._begin(parts, batch, ledger, entry)
                    put += entry.done
                assert entry is not None
                try:
                    put += self._go_on(entry, ledger)
                except _FilesLost as lost:
                    left = lost.entry
                    if left.done or (left.batch, left.digest) != (batch.batch, batch.digest):
                        raise lost_files(left, batch, lost.why) from None
                    # Nothing of it is put, and these are the same rows.
                    put += self._begin(parts, batch, ledger, left).done
                    continue
            except RecordConflict:
                # Somebody else puts this batch too, and was faster: see how far it is now.
                continue
            if verdict is Verdict.GO_ON_WITH_OLDER:
                continue
            if verdict is not Verdict.NEW:
                check_the_same(entry, batch, went_on)
            return put

    def _begin(
        self, parts: Sequence[Part], batch: SinkBatch, ledger: SinkLedger, last: Entry | None
    ) -> Entry:
        """Record the batch: with its rows if they are few, else with the files they are in.

        ``last`` is the entry that it takes the place of.
        """
        check_queues(self._store, together(parts))
        # A batch without rows has no task that could tell its query; the sink is still that one's.
        query = batch.query or (last.query if last else None)
        entry = Entry(
            batch.batch, query, batch.run, batch.rows, batch.digest,
            location=masked(self._location), queue=self._queue,
            dedupe_window=self._options.dedupe_window, version=last.version if last else 0,
        )  # fmt: skip
        failpoints.reach("sink.before-manifest")
        if _fits_one_transaction(parts, batch.rows):
            finished = replace(entry, done=entry.rows)
            if self._put_at_once(parts, ledger.change(finished)):
                ledger.tidy()
                return finished
        files = self._staged(parts)
        entry = ledger.record(replace(entry, files=tuple(files)))
        failpoints.reach("sink.after-manifest")
        return entry

    def _put_at_once(self, parts: Sequence[Part], change: RecordChange) -> bool:
        """False when the queue has no room for them now."""
        puts: list[Put] = []
        for part in parts:
            for batch in self._rows(part.rows):
                puts += make_puts(batch, self._queue, self._options.dedupe_window)
        try:
            answers = self._store.enqueue_with_records(puts, [change], now=self._when.now)
        except QueueIsFull as full:
            if full.overflow != "block":
                raise Full(
                    f"queue {full.queue!r} is full and refuses more; nothing of this batch was put"
                ) from None
            return False
        failpoints.reach("sink.after-chunk")
        Portion(self._store, self._when, self._options.put_timeout).fitted(answers)
        return True

    def _staged(self, parts: Sequence[Part]) -> list[StagedFile]:
        """The files of all parts, in their order; those that rode in messages get one."""
        files: list[StagedFile] = []
        for rode, several in groupby(parts, lambda part: isinstance(part.rows, bytes)):
            if rode:
                rows = [batch for part in several for batch in self._rows(part.rows)]
                with RowsOut(rows[0].schema, self._folder, self._prefix) as out:
                    out.to_file()
                    for batch in rows:
                        out.add(batch)
                    made = out.finish()
                assert isinstance(made, StagedFile)
                files.append(made)
            else:
                files += [part.rows for part in several if isinstance(part.rows, StagedFile)]
        for file in files:
            check_file(self._folder, file)
        return files

    def _go_on(self, entry: Entry, ledger: SinkLedger) -> int:
        """Put what is left of a recorded batch, and remove its files; how many rows that were."""
        folder = self._folder_of(entry)
        progress = _Recorded(entry, ledger)
        if not entry.is_finished:
            try:
                rows = _behind(entry.done, _rows_of(entry, folder))
                self._put_all(rows, entry.queue, entry.dedupe_window, progress)
            except _FilesLost as lost:
                # Somebody else may have come to the end, and removed the files.
                found = ledger.load()
                if found is None or found.version == progress.entry.version:
                    raise _FilesLost(progress.entry, lost.why) from None
                raise RecordConflict("the batch was put by somebody else") from None
            ledger.tidy()
        failpoints.reach("sink.before-removal")
        folder.remove([file.name for file in entry.files])
        return progress.entry.done - entry.done

    # --- both ------------------------------------------------------------------------------------
    def _put_all(
        self, rows: Iterable[pa.RecordBatch], queue: str | None, window: float, progress: _Progress
    ) -> None:
        portion = Portion(self._store, self._when, self._options.put_timeout)
        try:
            for chunk in chunks(make_puts(batch, queue, window) for batch in rows):
                start = 0
                while start < len(chunk):
                    some = chunk[start : start + portion.size]
                    try:
                        answers = self._store.enqueue_with_records(
                            some, progress.changes(len(some)), now=self._when.now
                        )
                    except QueueIsFull as full:
                        portion.did_not_fit(full, len(some))
                        continue
                    progress.advance(len(some))
                    failpoints.reach("sink.after-chunk")
                    start += len(some)
                    portion.fitted(answers)
        except Full as full:
            raise Full(f"{full}; {progress}") from None
        except RecordConflict:
            raise
        except LocalQueueError as error:
            error.add_note(str(progress))
            raise

    def _rows(self, rows: bytes | StagedFile) -> Iterator[pa.RecordBatch]:
        if isinstance(rows, bytes):
            return rows_in_message(rows)
        return rows_in_file(self._folder, rows)

    # --- files -----------------------------------------------------------------------------------
    def _folder_of(self, entry: Entry) -> Folder:
        """Where a recorded batch has its files: the option may be another one by now."""
        here = entry.location == masked(self._location)
        return self._folder if here else folder_at(entry.location, ours=False)

    def _leftovers(self, prefixes: Collection[str]) -> set[str]:
        return {name for prefix in {self._prefix, *prefixes} for name in self._folder.names(prefix)}

    def _remove_old_files(self) -> None:
        """Those of writers that died before they recorded anything."""
        if isinstance(self._folder, LocalFolder) and self._options.staging_directory is None:
            old = self._folder.old_names()
            if old:
                self._folder.remove(set(old) - unfinished_files(self._store, self._when))


def together(parts: Iterable[Part]) -> dict[str, Facts]:
    """What is known of all rows, by queue."""
    facts: dict[str, Facts] = {}
    for part in parts:
        for queue, fact in part.facts.items():
            facts.setdefault(queue, Facts()).add(fact)
    return facts


def _fits_one_transaction(parts: Sequence[Part], rows: int) -> bool:
    size = sum(len(part.rows) for part in parts if isinstance(part.rows, bytes))
    return (
        rows <= LARGEST_BATCH
        and size <= LARGEST_BATCH_BYTES
        and all(isinstance(part.rows, bytes) for part in parts)
    )


def _behind(done: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        if done >= len(batch):
            done -= len(batch)
            continue
        yield batch.slice(done)
        done = 0


def _rows_of(entry: Entry, folder: Folder) -> Iterator[pa.RecordBatch]:
    """The rows of a recorded batch, all files looked at before the first; _FilesLost."""
    try:
        for file in entry.files:
            check_file(folder, file)
        for file in entry.files:
            yield from rows_in_file(folder, file)
    except (StoreCorrupt, FileNotFoundError) as why:
        raise _FilesLost(entry, why) from None


class _FilesLost(Exception):
    """The files of a recorded batch are not there any more, or not as they were written."""

    def __init__(self, entry: Entry, why: Exception) -> None:
        super().__init__(entry, why)
        self.entry = entry
        self.why = why


class _Progress(Protocol):
    """How far a write is; shown, it says so."""

    def changes(self, rows: int) -> Sequence[RecordChange]:
        """What is to be recorded with the next so many rows."""

    def advance(self, rows: int) -> None:
        """They are put."""


class _Unrecorded:
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.done = 0

    def changes(self, rows: int) -> Sequence[RecordChange]:
        return ()

    def advance(self, rows: int) -> None:
        self.done += rows

    def __str__(self) -> str:
        return (
            f"{self.done:,} of {self._rows:,} rows are put, and a rerun puts all again; with a"
            " sinkId it would go on"
        )


class _Recorded:
    def __init__(self, entry: Entry, ledger: SinkLedger) -> None:
        self.entry = entry
        self._ledger = ledger

    def changes(self, rows: int) -> Sequence[RecordChange]:
        return [self._ledger.change(replace(self.entry, done=self.entry.done + rows))]

    def advance(self, rows: int) -> None:
        entry = self.entry
        self.entry = replace(entry, done=entry.done + rows, version=entry.version + 1)

    def __str__(self) -> str:
        return (
            f"{self.entry.done:,} of {self.entry.rows:,} rows are put, the others follow when this"
            " batch is written again"
        )
