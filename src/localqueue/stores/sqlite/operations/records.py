"""A row of SQLite from its bytes."""

from __future__ import annotations

import struct
from typing import Any


class Damage(Exception):
    """Something that cannot be: the page or the row is not what was written."""


_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""How many bytes a type has."""


def read_record(payload: bytes) -> list[Any]:
    """The columns of a row; Damage when it is not exactly a row."""
    try:
        header, at = read_varint(payload, 0)
        types = _types(payload, at, header)
        at = header
        values: list[Any] = []
        for kind in types:
            if kind:
                value, at = _value(payload, at, kind)
                values.append(value)
            else:
                values.append(None)
    except (struct.error, UnicodeDecodeError):
        raise Damage("the columns of a row cannot be read") from None
    if at != len(payload):
        raise Damage("the columns of a row do not fill it")
    return values


def _types(payload: bytes, at: int, end: int) -> list[int]:
    if not at <= end <= len(payload):
        raise Damage("the description of a row does not fit")
    types: list[int] = []
    while at < end:
        kind = payload[at]
        if kind < 0x80:
            at += 1
        else:
            kind, at = read_varint(payload, at)
        types.append(kind)
    if at != end:
        raise Damage("the description of a row does not fit")
    return types


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """SQLite's integer of one to nine bytes, and where it ends."""
    value = 0
    for n in range(9):
        if at + n >= len(data):
            raise Damage("a number reaches beyond its page")
        byte = data[at + n]
        if n == 8:
            value = (value << 8) | byte
            # The only length that has room for a sign.
            return value - (1 << 64) if value >> 63 else value, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            break
    return value, at + n + 1


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    if kind in (8, 9):
        return kind - 8, at
    if kind < 12:
        raise Damage("a column has a type that does not exist")
    end = at + (kind - 12) // 2
    content = payload[at:end]
    return (content.decode() if kind % 2 else content), end
