"""Cells of the file as columns that users know: made by Arrow, for many rows at once.

What SQL makes of a cell it makes row by row: the text of an id costs it as much there as reading
the whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.codec import decode_headers
from localqueue.errors import DamagedMessage

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.map_(pa.string(), pa.string())
# The four digits of every two bytes.
_HEX = np.frombuffer("".join(f"{number:04x}" for number in range(2**16)).encode(), np.uint32)


@lru_cache(maxsize=64)
def repeated(value: str | int, rows: int) -> pa.Array:
    """The same text, or the same 32-bit number, in every row. Most batches have as many rows."""
    return pa.repeat(value if isinstance(value, str) else pa.scalar(value, pa.int32()), rows)


@lru_cache(maxsize=64)
def nothing(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind)


def public_ids(seqs: pa.Array, identity: Sequence[tuple[int, str]]) -> pa.Array:
    """The public ids, or journal positions, of these seqs; null stays null."""
    numbers = (seqs if seqs.null_count == 0 else pc.fill_null(seqs, 0)).to_numpy()
    n = len(numbers)
    # Four digits are one number here: as many steps less.
    digits = np.empty((n, 8), dtype=np.uint32)
    bits = np.frombuffer("".join(bits for _, bits in identity).encode(), np.uint32).reshape(-1, 4)
    if len(identity) == 1:
        digits[:, :4] = bits[0]
    else:
        starts = np.array([start for start, _ in identity])
        digits[:, :4] = bits[np.searchsorted(starts, numbers, side="right") - 1]
    digits[:, 4:] = _HEX[numbers.astype(">i8").view(">u2").reshape(n, 4)]
    offsets = np.arange(0, 32 * n + 1, 32, dtype=np.int32)
    ids = pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(digits))
    return ids if seqs.null_count == 0 else pc.if_else(seqs.is_valid(), ids, None)


def timestamps(seconds: pa.Array) -> pa.Array:
    """Store times to the microsecond, rounded as ``filters.micros`` does."""
    exact = pc.add(pc.multiply(seconds, 1_000_000.0), 0.5)
    return exact.cast(pa.int64(), safe=False).view(TIMESTAMP)


def words(numbers: pa.Array, known: Mapping[int, str] | Sequence[str]) -> pa.Array:
    """Names for small numbers."""
    names = known if isinstance(known, Mapping) else dict(enumerate(known))
    positions = pc.index_in(numbers, value_set=pa.array(list(names), pa.int64()))
    return pa.array(list(names.values()), pa.string()).take(positions)


def header_maps(encoded: pa.Array) -> pa.Array:
    """Headers are JSON; the same ones are read once."""
    different = encoded.dictionary_encode()
    maps = [_header_items(text) for text in different.dictionary.to_pylist()]
    return pa.array(maps, HEADERS).take(different.indices)


def json_texts(bodies: pa.Array, ids: Callable[[], pa.Array], *, strict: bool) -> pa.Array:
    """Stored values as text. DamagedMessage for one that is no text, or null if not ``strict``.

    ``ids`` gives the ids of their messages, when one has to be named.
    """
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [_text(body) for body in bodies.to_pylist()]
    damaged = [at for at, text in enumerate(texts) if text is None and bodies[at].is_valid]
    if strict and damaged:
        raise DamagedMessage(f"the value of message {ids()[damaged[0]]} is not text")
    return pa.array(texts, pa.string())


def _header_items(encoded: bytes) -> list[tuple[str, str]] | None:
    try:
        return list(decode_headers(encoded).items())
    except (AttributeError, ValueError):
        return None  # damaged


def _text(body: bytes | None) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError:
        return None
