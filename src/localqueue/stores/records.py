"""One shape for results, ledger, attempts, limits, schedules, offsets and locks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """A value under ``(kind, key)``. ``version`` grows with each save, from 1."""

    kind: str
    key: str
    value: bytes
    version: int
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class RecordChange:
    """Save ``value`` under ``(kind, key)``, or delete it when ``value`` is None.

    ``expect`` is the version that must be there now: 0 for none, None for whatever there is.
    ``ttl`` is how long the record lives from now; None for ever.
    """

    kind: str
    key: str
    value: bytes | None
    expect: int | None = None
    ttl: float | None = None
