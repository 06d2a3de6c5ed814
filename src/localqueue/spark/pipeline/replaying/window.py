"""The time that is replayed: from a moment on, up to another one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from localqueue.errors import InvalidArgument, WrongType

if TYPE_CHECKING:
    from pyspark.sql import Column

REPLAY_OF = "localqueue-replay-of"
"""The header with the id that a message had when it came first."""
ARRIVALS = ("enqueued", "published")
"""The events by which a message comes to a queue, or to a topic. They have the payload."""


@dataclass(frozen=True, slots=True)
class Window:
    """What came at ``since`` or later, and before ``until``, by the time of the store."""

    since: datetime
    until: datetime

    def __post_init__(self) -> None:
        for moment in (self.since, self.until):
            if not isinstance(moment, datetime):
                raise WrongType(f"a window is between two datetimes, not {type(moment).__name__}")
            if moment.tzinfo is None:
                raise InvalidArgument(f"{moment} has no time zone; write tzinfo=UTC")
        if self.until <= self.since:
            raise InvalidArgument(f"the window is reversed or empty: {self}")

    def __str__(self) -> str:
        return between(self.since, self.until)

    def of_files(self) -> str:
        """As ``Table.files`` takes it: SQL over the bounds that the log keeps."""
        # Bounds are kept to the millisecond, rounded outwards.
        return f"at >= '{_iso(self.since)}' AND at < '{_iso(self.until)}'"

    def of_rows(self) -> Column:
        """As Spark takes it, whatever the session's time zone."""
        from pyspark.sql import functions as f

        at = f.unix_micros("at")
        return (at >= _micros(self.since)) & (at < _micros(self.until))

    def touches(self, began: datetime, ended: datetime) -> bool:
        """Whether it has a moment of this time, whose ends belong to it."""
        return began < self.until and ended >= self.since


def between(began: datetime, ended: datetime) -> str:
    return f"from {shown(began)} to {shown(ended)}"


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def shown(moment: datetime) -> str:
    """In UTC, as commands take it too."""
    return moment.astimezone(UTC).isoformat().removesuffix("+00:00")
