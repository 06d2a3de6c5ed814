"""Where a stream stands in a journal, as Spark keeps it in a checkpoint, and where it may begin.

An offset is JSON: the store's id and a position per shard, ``{"store": "9f3c…", "0": 1200}``; all
events up to the position are behind it. A store has one shard today.

Two notes ride on the offsets that need them, and are gone from the next ones. ``began`` is on the
end of a query's first batch: Spark does not keep where that batch began, and asks again when it
replays it, when the answer could be another. ``trimmed`` is on the offsets of a query that began
with whatever was kept: up to where each queue's events were gone already, until it is past that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localqueue.errors import ConfigurationError, JournalForeign
from localqueue.spark.options import Offsets, Options
from localqueue.spark.read.scan import Source

SHARD = "0"
LEASE = "lease"
"""Where an offset of lease mode has the name of its stream: its position is not one of events."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A position of one store's journal."""

    store: str
    seq: int
    began: int | None = None
    trimmed: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        offset: dict[str, Any] = {"store": self.store, SHARD: self.seq}
        if self.began is not None:
            offset["began"] = self.began
        if self.trimmed:
            offset["trimmed"] = dict(self.trimmed)
        return offset

    def moved(self, seq: int) -> Offset:
        """Further on, without the notes that are behind it then."""
        ahead = {queue: gone for queue, gone in self.trimmed.items() if gone > seq}
        return Offset(self.store, seq, trimmed=ahead)


def read_offset(given: Mapping[str, Any], source: Source) -> Offset:
    """An offset of a checkpoint; JournalForeign when it is not of this store."""
    if LEASE in given:
        raise JournalForeign(
            f"the checkpoint belongs to the stream {given[LEASE]!r} of lease mode, and does not say"
            " what of the journal was read: use another checkpointLocation"
        )
    try:
        offset = Offset(
            given["store"], int(given[SHARD]), given.get("began"), given.get("trimmed", {})
        )
    except (KeyError, TypeError, ValueError):
        raise JournalForeign(
            f"the checkpoint has the offset {given!r}, which this source never wrote; it belongs to"
            " another source: use another checkpointLocation"
        ) from None
    if offset.store != source.store_id:
        raise JournalForeign(
            f"the checkpoint belongs to the store {offset.store}, and this one is"
            f" {source.store_id}: another file, or one restored from a backup. Its journal does not"
            " continue the other one's; use a new checkpointLocation, and startingOffsets or"
            " startingTimestamp to say where to begin"
        )
    return offset


def starting_seq(options: Options, source: Source) -> int:
    """After which seq a new read begins."""
    if options.starting_timestamp is not None:
        return source.journal_at(options.starting_timestamp)
    if options.starting_offsets == "earliest":
        return source.journal_oldest()
    if options.starting_offsets == "latest":
        return source.journal_end()
    seq = _position(options.starting_offsets, source, "startingOffsets")
    newest = source.journal_end()
    if seq > newest:
        raise ConfigurationError(
            f"startingOffsets: position {seq} is not there yet, the journal ends at {newest}"
        )
    return seq


def is_chosen_start(options: Options) -> bool:
    """Whether the caller names a point of the journal, and not just its begin or its end."""
    return options.starting_timestamp is not None or isinstance(options.starting_offsets, dict)


def takes_what_is_kept(options: Options) -> bool:
    """Whether a new read begins with whatever there is, so that what is gone by then is no loss."""
    return options.starting_timestamp is not None or options.starting_offsets == "earliest"


def ending_seq(options: Options, source: Source, newest: int) -> int:
    """Up to which seq to read: as far as the journal goes, unless the options end it before."""
    if options.ending_timestamp is not None:
        return min(newest, source.journal_at(options.ending_timestamp))
    if options.ending_offsets == "latest":
        return newest
    if options.ending_offsets == "earliest":
        raise ConfigurationError(
            """endingOffsets: earliest ends before it begins; use latest or {"0": 1200}"""
        )
    return min(newest, _position(options.ending_offsets, source, "endingOffsets"))


def _position(offsets: Offsets, source: Source, option: str) -> int:
    positions = dict(offsets) if isinstance(offsets, dict) else {}
    store = positions.pop("store", source.store_id)
    if store != source.store_id:
        raise JournalForeign(
            f"{option}: the position is of the store {store}, and this one is {source.store_id}"
        )
    if list(positions) != [SHARD]:
        raise ConfigurationError(
            f"""{option}: this store has one shard, "0"; write {{"0": 1200}}, not shards"""
            f" {', '.join(positions) or 'of none'}"
        )
    return int(positions[SHARD])
