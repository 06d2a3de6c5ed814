"""Who is measured, in the order of the tables."""

from __future__ import annotations

from benchmarks.peers import dramatiq, huey, litequeue, ours, persist_queue, raw_sqlite, rq
from benchmarks.peers.contestant import Entrant

ENTRANTS: tuple[Entrant, ...] = (
    ours.LEASED,
    ours.AT_MOST_ONCE,
    raw_sqlite.ENTRANT,
    huey.ENTRANT,
    litequeue.ENTRANT,
    persist_queue.WITH_ACK,
    persist_queue.WITHOUT_ACK,
    rq.ENTRANT,
    dramatiq.ENTRANT,
)


def rival(entrant: Entrant) -> Entrant:
    """Ours with the same promise: a queue without ack is compared with at-most-once delivery."""
    return ours.LEASED if entrant.acknowledges else ours.AT_MOST_ONCE
