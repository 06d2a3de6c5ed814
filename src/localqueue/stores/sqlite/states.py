"""The small numbers that stand for states, event kinds and actors in the file."""

from __future__ import annotations

from localqueue.message import State

READY, DELAYED, HELD, INFLIGHT, DEAD = range(5)
PUBLIC_STATE = (State.READY, State.READY, State.READY, State.INFLIGHT, State.DEAD)
STATE_NAMES = ("ready", "delayed", "held", "inflight", "dead")

BY_WORKER, BY_OPERATOR, BY_SWEEP = range(3)
ACTORS = ("worker", "operator", "sweep")

KINDS = (
    "configured",
    "enqueued",
    "published",
    "leased",
    "extended",
    "acked",
    "released",
    "lease_expired",
    "dead_lettered",
    "quarantined",
    "requeued",
    "promoted",
    "expired",
    "cancelled",
    "cancel_asked",
    "dropped",
    "purged",
    "subscribed",
    "unsubscribed",
    "counted",
    "pruned",
)
(
    CONFIGURED,
    ENQUEUED,
    PUBLISHED,
    LEASED,
    EXTENDED,
    ACKED,
    RELEASED,
    LEASE_EXPIRED,
    DEAD_LETTERED,
    QUARANTINED,
    REQUEUED,
    PROMOTED,
    EXPIRED,
    CANCELLED,
    CANCEL_ASKED,
    DROPPED,
    PURGED,
    SUBSCRIBED,
    UNSUBSCRIBED,
    COUNTED,
    PRUNED,
) = range(len(KINDS))

DEDUPE_KEY, REQUEST_ID = range(2)
