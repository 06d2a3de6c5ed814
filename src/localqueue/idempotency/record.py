"""What a ledger knows of a key."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from localqueue.codec import JSON_CODEC
from localqueue.errors import (
    InvalidArgument,
    InvalidMessage,
    InvalidResult,
    StoreCorrupt,
    StoreUnsupported,
    WrongType,
)

VERSION = 1
Status = Literal["pending", "succeeded", "failed"]
STATUSES = ("pending", "succeeded", "failed")


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """How far the work of a key has come. Times are seconds of ``time.time()``.

    ``result_key`` says where the result is: ``"inline"`` is ``metadata["result"]``, anything else a
    key of the result store. ``metadata`` is free, and has to be JSON.
    """

    status: Status
    first_seen_at: float
    completed_at: float | None = None
    result_key: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise InvalidArgument(
                f"status must be one of {', '.join(STATUSES)}, not {self.status!r}"
            )
        if not isinstance(self.metadata, dict):
            raise WrongType(f"metadata must be a dict, not {type(self.metadata).__name__}")

    @classmethod
    def pending(cls, **metadata: Any) -> IdempotencyRecord:
        """A key that was seen now."""
        return cls("pending", time.time(), metadata=metadata)

    @property
    def is_done(self) -> bool:
        return self.status == "succeeded"


def encode_record(record: IdempotencyRecord) -> bytes:
    """The record as it is kept; InvalidResult when its metadata cannot be."""
    fields = {
        "v": VERSION,
        "status": record.status,
        "first_seen_at": record.first_seen_at,
        "completed_at": record.completed_at,
        "result_key": record.result_key,
        "metadata": record.metadata,
    }
    try:
        return JSON_CODEC.encode(fields)
    except InvalidMessage as error:
        reason = str(error).removeprefix("queue values must be JSON-serializable: ")
        raise InvalidResult(
            f"a result and the metadata of its key must be JSON-serializable: {reason}"
        ) from error


def decode_record(kept: bytes, key: str) -> IdempotencyRecord:
    """The record; StoreUnsupported when a newer release wrote it."""
    try:
        fields = json.loads(kept)
        version = fields.pop("v")
        if version <= VERSION:
            return IdempotencyRecord(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreCorrupt(f"what is kept of the key {key!r} is damaged") from error
    raise StoreUnsupported(
        f"the record of the key {key!r} has version {version}; this release knows up to {VERSION}"
    )
