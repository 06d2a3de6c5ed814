"""Whether two puts with one key are one message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.checks import check_seconds
from localqueue.errors import InvalidArgument

CONFLICTS = ("existing", "error")


class DeduplicationPolicy(Protocol):
    """Says whether puts may carry a dedupe key, and what a key that is taken means."""

    @property
    def deduplication(self) -> bool: ...

    @property
    def accepts_dedupe_key(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class DedupeKeySupport:
    """One key, one message.

    The key is taken until its message is gone, and at least ``window`` seconds from the put,
    however soon the message is acknowledged. A put whose key is taken returns the message that has
    it (``duplicate`` is True). When the values differ, ``on_conflict="error"`` raises
    DuplicateConflict instead.
    """

    window: float = 0.0
    on_conflict: str = "existing"
    deduplication: ClassVar[bool] = True
    accepts_dedupe_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_seconds("window", self.window)
        if self.on_conflict not in CONFLICTS:
            raise InvalidArgument(
                f"on_conflict must be 'existing' or 'error', not {self.on_conflict!r}"
            )

    def as_dict(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "deduplication": self.deduplication,
            "accepts_dedupe_key": self.accepts_dedupe_key,
        }
        if self.window:
            described["window"] = self.window
        if self.on_conflict != "existing":
            described["on_conflict"] = self.on_conflict
        return described


@dataclass(frozen=True, slots=True)
class NoDeduplication:
    """Every put is a message of its own; a dedupe key is refused."""

    deduplication: ClassVar[bool] = False
    accepts_dedupe_key: ClassVar[bool] = False
    window: ClassVar[float] = 0.0
    on_conflict: ClassVar[str] = "existing"

    def as_dict(self) -> dict[str, Any]:
        return {
            "deduplication": self.deduplication,
            "accepts_dedupe_key": self.accepts_dedupe_key,
        }


DEDUPE_KEY_SUPPORT = DedupeKeySupport()
NO_DEDUPLICATION = NoDeduplication()
