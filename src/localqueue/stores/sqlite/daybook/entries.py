"""What is noted in a daybook, and the bytes of it.

An entry is a run of events of one kind, with all that the tables will be told of it: posting one
needs nothing but the entry. The checksum of each begins with that of the entry before it, and that
of the first with the salt of the book: an entry counts behind the one that it was written behind,
and what is left of older generations does not, whatever its events.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from localqueue.errors import StoreUnsupported


class Puts(NamedTuple):
    """Plain messages, put in one call."""

    seq: int
    """Of the first one's event, which is its number as well."""
    at: float
    queue: int
    bodies: Sequence[bytes]


class Leases(NamedTuple):
    """Plain messages that nothing had happened to, leased in one call."""

    seq: int
    """Of the first one's event, which is its token as well."""
    at: float
    queue: int
    numbers: Sequence[int]
    until: float
    worker: str | None
    liveness: str | None
    note: str | None


class Acks(NamedTuple):
    """The ends of leases that stand in the book, all of one call and by one worker."""

    seq: int
    at: float
    queue: int
    numbers: Sequence[int]
    tokens: Sequence[int]
    created_at: Sequence[float]
    positions: Sequence[float]
    leased_at: float
    worker: str | None


Entry = Puts | Leases | Acks

_PUTS, _LEASES, _ACKS = range(1, 4)
_LASTS = 0x80
"""Beside the kind: it was answered as being on stable storage."""
_MORE = 0x40
"""Beside the kind: the next entry belongs to the same call, and without it this one is nothing."""
_CHECKSUM = struct.Struct("<I")
_HEAD = struct.Struct("<IQdIBI")
"""How long the entry is after this number, first event, time, queue, kind, how many events."""
_LENGTH = struct.Struct("<I")
FIRST = struct.Struct("<IIQ")
"""The beginning of an entry, up to its first event."""
BEGINNING = _CHECKSUM.size + _HEAD.size
"""How long an entry is before what it says."""


def size(entry: Entry) -> int:
    """How many events it is."""
    return len(entry[3])


def encode_call(entries: Sequence[Entry], before: int, *, lasts: bool) -> tuple[int, bytes]:
    """What one call does: all of it counts, or nothing."""
    if len(entries) == 1:
        return encode(entries[0], before, lasts=lasts)
    parts = []
    for left, entry in zip(range(len(entries) - 1, -1, -1), entries, strict=True):
        before, data = encode(entry, before, lasts=lasts, more=left > 0)
        parts.append(data)
    return before, b"".join(parts)


def encode(entry: Entry, before: int, *, lasts: bool, more: bool = False) -> tuple[int, bytes]:
    """Its checksum, and all of it; ``before`` is that of the entry before it, or the salt."""
    kind = type(entry)
    if kind is Puts:
        number, payload = _PUTS, _encode_bodies(entry[3])  # type: ignore[arg-type]
    elif kind is Leases:
        number, payload = _LEASES, _encode_leases(entry)  # type: ignore[arg-type]
    else:
        number, payload = _ACKS, _encode_acks(entry)  # type: ignore[arg-type]
    if lasts:
        number |= _LASTS
    if more:
        number |= _MORE
    length = _HEAD.size - _LENGTH.size + len(payload)
    rest = _HEAD.pack(length, entry[0], entry[1], entry[2], number, len(entry[3])) + payload
    checksum = crc32(rest, before)
    return checksum, _CHECKSUM.pack(checksum) + rest


def has_to_last(data: bytes) -> bool:
    """Whether the entry that this begins with was answered as being on stable storage."""
    if len(data) < BEGINNING:
        return False
    return bool(_HEAD.unpack_from(data, _CHECKSUM.size)[4] & _LASTS)


def decode(
    data: bytes, salt: int, after: int, grown: Callable[[int], bytes] | None = None
) -> Iterator[tuple[Entry, bool]]:
    """The entries from the first that comes after this event; and whether each had to last.

    Those of a call that is not there to its end are left out. ``grown`` gives at least so many of
    the bytes, if there are; without it ``data`` is all of them.
    """
    place, expected, before = 0, None, salt
    call: list[tuple[Entry, bool]] = []
    while True:
        if place + BEGINNING > len(data) and grown is not None:
            data = grown(place + BEGINNING)
        if place + BEGINNING > len(data):
            return
        (checksum,) = _CHECKSUM.unpack_from(data, place)
        length, seq, at, queue, kind, n = _HEAD.unpack_from(data, place + _CHECKSUM.size)
        end = place + _CHECKSUM.size + _LENGTH.size + length
        if seq <= after or (expected is not None and seq != expected):
            # What is left of an older generation: how long it says to be means nothing.
            return
        if end > len(data) and grown is not None:
            data = grown(end)
        if end > len(data) or crc32(data[place + _CHECKSUM.size : end], before) != checksum:
            return
        payload = data[place + _CHECKSUM.size + _HEAD.size : end]
        entry = _decode(kind & ~(_LASTS | _MORE), seq, at, queue, n, payload)
        call.append((entry, bool(kind & _LASTS)))
        if not kind & _MORE:
            yield from call
            call.clear()
        place, expected, before = end, seq + n, checksum


def _decode(kind: int, seq: int, at: float, queue: int, n: int, payload: bytes) -> Entry:
    match kind:
        case 1:
            return Puts(seq, at, queue, _decode_bodies(payload, n))
        case 2:
            columns = _lease_columns(n)
            until, *numbers = columns.unpack_from(payload)
            worker, liveness, note = json.loads(payload[columns.size :])
            return Leases(seq, at, queue, numbers, until, worker, liveness, note)
        case 3:
            return _decode_acks(payload, n, seq, at, queue)
    raise StoreUnsupported(
        f"the daybook has an entry of kind {kind}, which this release does not know; open the file"
        " with the release that wrote it"
    )


def _encode_bodies(bodies: Sequence[bytes]) -> bytes:
    if len(bodies) == 1:
        return bodies[0]
    return struct.pack(f"<{len(bodies)}I", *map(len, bodies)) + b"".join(bodies)


def _decode_bodies(payload: bytes, n: int) -> list[bytes]:
    if n == 1:
        return [payload]
    bodies, place = [], 4 * n
    for length in struct.unpack_from(f"<{n}I", payload):
        bodies.append(payload[place : place + length])
        place += length
    return bodies


@lru_cache(maxsize=256)
def _lease_columns(n: int) -> struct.Struct:
    return struct.Struct(f"<d{n}Q")


@lru_cache(maxsize=256)
def _ack_columns(n: int) -> struct.Struct:
    return struct.Struct(f"<d{2 * n}Q{2 * n}d")


def _encode_leases(entry: Leases) -> bytes:
    _, _, _, numbers, until, worker, liveness, note = entry
    columns = _lease_columns(len(numbers)).pack(until, *numbers)
    return columns + _names(worker, liveness, note)


@lru_cache(maxsize=64)
def _names(*names: str | None) -> bytes:
    """Whatever SQLite would not take is a TypeError or a ValueError here."""
    for name in names:
        if not isinstance(name, str | None):
            raise TypeError(f"a name is a string, not {type(name).__name__}")
    return json.dumps(names, ensure_ascii=False).encode()


def _encode_acks(entry: Acks) -> bytes:
    _, _, _, numbers, tokens, created_at, positions, leased_at, worker = entry
    pack = _ack_columns(len(numbers)).pack
    return pack(leased_at, *numbers, *tokens, *created_at, *positions) + _names(worker)


def _decode_acks(payload: bytes, n: int, seq: int, at: float, queue: int) -> Acks:
    leased_at, *fields = _ack_columns(n).unpack_from(payload)
    numbers, tokens, created_at, positions = (
        fields[first : first + n] for first in range(0, 4 * n, n)
    )
    (worker,) = json.loads(payload[8 + 32 * n :])
    return Acks(seq, at, queue, numbers, tokens, created_at, positions, leased_at, worker)


def renumbered(entries: Sequence[Entry], shift: int) -> list[Entry]:
    """The same with other events: somebody who knows no daybook has used theirs meanwhile."""
    first = entries[0].seq
    moved: list[Entry] = []

    def number(seq: int) -> int:
        return seq + shift if seq >= first else seq

    for entry in entries:
        match entry:
            case Puts():
                moved.append(entry._replace(seq=entry.seq + shift))
            case Leases():
                numbers = [*map(number, entry.numbers)]
                moved.append(entry._replace(seq=entry.seq + shift, numbers=numbers))
            case Acks():
                numbers, tokens = [*map(number, entry.numbers)], [*map(number, entry.tokens)]
                moved.append(entry._replace(seq=entry.seq + shift, numbers=numbers, tokens=tokens))
    return moved
