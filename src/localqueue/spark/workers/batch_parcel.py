"""A batch of messages on its way to an executor: all in one, or with each value by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from localqueue.errors import InvalidMessageType
from localqueue.message import QueueMessage
from localqueue.workers.parcel import pack, unpack


class BatchParcel(NamedTuple):
    """What a job is given."""

    job: int
    size: int
    """How many messages it has: known before any of them is read, which may not go well."""
    messages: bytes
    """Their fields."""


class PackedValue(NamedTuple):
    """In the place of a value that is read when its handler begins."""

    pickled: bytes

    def value(self) -> Any:
        """InvalidMessageType where it cannot be made."""
        try:
            return unpack(self.pickled)
        except Exception as error:
            raise InvalidMessageType(
                f"an executor cannot read the value: {type(error).__name__}: {error}"
            ) from error


NOTHING = pack(BatchParcel(0, 0, b""))


def pack_together(job: int, messages: Sequence[QueueMessage[Any]]) -> bytes:
    """In one piece, which cannot be read at all when one value cannot be.

    It is five times quicker than one piece for each.
    """
    return _pack(job, [vars(message) for message in messages])


def pack_apart(job: int, messages: Sequence[QueueMessage[Any]]) -> bytes:
    """So that only the one fails that cannot be read."""
    return _pack(job, [{**vars(m), "value": PackedValue(pack(m.value))} for m in messages])


def _pack(job: int, fields: list[dict[str, Any]]) -> bytes:
    return pack(BatchParcel(job, len(fields), pack(fields)))
