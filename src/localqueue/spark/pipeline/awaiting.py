"""Waiting for a query, so that Ctrl-C is heard.

Spark answers Ctrl-C by a call of its own, in the middle of whatever call the main thread waits for,
and over the same connection: it goes on only when that one is answered. So no call may take long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LONGEST_CALL = 1


def ends_within(query: StreamingQuery, seconds: int | None = None) -> bool:
    """Wait for the end of the query: True. False when it has not come in so many seconds."""
    waited = 0
    while seconds is None or waited < seconds:
        if query.awaitTermination(LONGEST_CALL):
            return True
        waited += LONGEST_CALL
    return False
