"""What is kept of the attempts made under one key."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from localqueue.errors import StoreCorrupt

VERSION = 1


@dataclass(slots=True)
class RetryRecord:
    """Failed attempts under one key, since ``first_attempt_at`` (``time.time()``)."""

    attempts: int = 0
    first_attempt_at: float = 0.0
    exhausted: bool = False
    """The budget is spent: the function is not called again until somebody resets the key."""

    @classmethod
    def new(cls) -> RetryRecord:
        """No attempt so far, the first one begins now."""
        return cls(first_attempt_at=time.time())


def encode_record(record: RetryRecord) -> bytes:
    """The record as versioned JSON."""
    kept = {
        "v": VERSION,
        "attempts": record.attempts,
        "first_attempt_at": record.first_attempt_at,
        "exhausted": record.exhausted,
    }
    return json.dumps(kept, separators=(",", ":")).encode()


def decode_record(kept: bytes) -> RetryRecord:
    """The record that ``encode_record`` wrote; StoreCorrupt for anything else."""
    try:
        read = json.loads(kept)
        version = read["v"]
        record = RetryRecord(
            int(read["attempts"]), float(read["first_attempt_at"]), bool(read["exhausted"])
        )
    except (ValueError, TypeError, KeyError) as error:
        raise StoreCorrupt(f"this is no attempt record: {kept[:80]!r}") from error
    if version != VERSION:
        raise StoreCorrupt(f"an attempt record of version {version} is not read by this release")
    return record
