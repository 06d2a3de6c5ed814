"""The option ``consumerGroup``: the journal is kept for a stream until the stream has it.

The group is a reader that is registered with the store under the option's name. The checkpoint
decides where a query goes on; the group only keeps what the query still needs from being trimmed.
So it belongs to one query: of two the faster one would let go of what the other one needs.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.errors import ConfigurationError, UnsupportedByStore
from localqueue.spark.leadership import Leadership
from localqueue.spark.options import Options
from localqueue.spark.read.offsets import is_chosen_start
from localqueue.spark.read.scan import Source
from localqueue.stores.open import open_store
from localqueue.stores.records import RecordChange

if TYPE_CHECKING:
    from localqueue.stores.protocol import JournalReader, QueueStore

RECORD = "spark-consumer-group"
"""The kind of the records that say where a group's query began."""


class ConsumerGroup:
    """A registered reader, moved in the process beside the driver.

    It holds the store open from its first use on; what is not closed ends with the process. The
    first use is ``lead``.
    """

    def __init__(self, options: Options, name: str) -> None:
        self._options = options
        self._name = name
        self._opened: tuple[QueueStore, StoreTime] | None = None
        self._leadership: Leadership | None = None
        self._at = -1
        """Where the group stands, as far as this process has moved it."""

    def lead(self) -> None:
        """Be the group's query from now on, until ``close`` or the end of the process.

        ConfigurationError while another process is. Where that cannot be told, all may be.
        """
        store, _ = self._store()
        if self._leadership is None:
            with suppress(UnsupportedByStore):
                self._leadership = Leadership(store, self._name)

    def begin(self, source: Source, wanted: int) -> int:
        """Where a query that has no checkpoint begins: at ``wanted``, if that loses nothing.

        A query that ended before its first batch begins where it had begun. ConfigurationError when
        the group has read on from there: then a checkpoint is missing, and only the user can know
        whether the rows up to the group's position are to be read again.
        """
        reader = self._reader()
        asked = json.dumps([self._options.starting_offsets, self._options.starting_timestamp])
        if reader is not None:
            stands = source.seq_of(reader.position)
            began, asked_then = self._began()
            if (began, asked_then) == (stands, asked):
                return stands
            # Naming a place is how a user says what to do; the same place again is an old answer.
            is_told = is_chosen_start(self._options) and asked_then != asked
            if began != stands and wanted != stands and not is_told:
                raise ConfigurationError(self._without_checkpoint(stands))
        self._write(source, wanted, asked)
        return wanted

    def has(self, source: Source, seq: int) -> None:
        """The sink has everything up to this position, so it need not be kept. Never moves back."""
        if seq <= self._at:
            return
        store, when = self._store()
        if self._reader() is None:
            # Dropped, or of a query that had no group before.
            self._register(source, seq)
        else:
            store.commit_reader(self._name, source.position(seq), now=when.now)
        self._at = seq

    def close(self) -> None:
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            leadership.close()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    def _without_checkpoint(self, stands: int) -> str:
        return (
            f"the consumer group {self._name!r} has read up to position {stands}, but this query"
            " has no checkpoint: it was lost, or the group belongs to another query. To go on after"
            f""" what the group has, start once with startingOffsets {{"0": {stands}}}; to read"""
            " something again, name its position or a startingTimestamp; a query of its own needs"
            " another consumerGroup"
        )

    def _began(self) -> tuple[int, str] | tuple[None, None]:
        """Where the group's query began, and what was asked for then."""
        store, when = self._store()
        record = store.load_record(RECORD, self._name, now=when.now)
        if record is None:
            return None, None
        began = json.loads(record.value)
        return began["position"], began["asked"]

    def _write(self, source: Source, seq: int, asked: str) -> None:
        store, when = self._store()
        # Registered last: without the group a record means nothing.
        value = json.dumps({"position": seq, "asked": asked}).encode()
        store.change_records([RecordChange(RECORD, self._name, value)], now=when.now)
        self._register(source, seq)
        self._at = seq

    def _register(self, source: Source, seq: int) -> None:
        store, when = self._store()
        # What is gone already is the stream's to judge, which knows its queues.
        position = source.position(seq)
        store.register_reader(self._name, position=position, missing_ok=True, now=when.now)

    def _reader(self) -> JournalReader | None:
        store, _ = self._store()
        return next((reader for reader in store.readers() if reader.name == self._name), None)

    def _store(self) -> tuple[QueueStore, StoreTime]:
        if self._opened is None:
            store = open_store(self._options.url)
            self._opened = store, StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK))
        return self._opened
