"""Spans of time that gold has rows for: counted from 1970, whatever the session's time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

MINUTE, HOUR, DAY = 60, 3600, 86_400


def start_of_span(moment: str, seconds: int) -> Column:
    """When the span began that this moment is in."""
    since_1970 = f.unix_micros(moment)
    return f.timestamp_micros(since_1970 - f.pmod(since_1970, f.lit(seconds * 1_000_000)))
