"""What a stream holds of its queue: leased, handed to batches, acknowledged.

A position is a lease token: everything that was leased up to it. The life of a message here:

    lease(most) ──▶ position() ──▶ messages(after, upto) ──▶ the sink has it ──▶ ack(upto)

Whatever dies, a message is acknowledged only when a later start says that the sink has it. What was
leased before and is not acknowledged is under the names of stream and queue in the store, so the
next process of that name finds it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.message import Receipt
from localqueue.spark.leadership import Leadership
from localqueue.spark.lease.heartbeat import LeaseHeartbeat
from localqueue.stores.leased import size_of
from localqueue.stores.protocol import LARGEST_BATCH, LeaseRequest, QueueStore, StoredMessage

log = logging.getLogger("localqueue.spark")

MOST_BYTES = 64 * 1024 * 1024
"""Of one batch: its messages go through the driver."""
DAMAGED = {
    "type": "DamagedMessage",
    "module": "localqueue.errors",
    "message": "value and checksum do not agree: what is stored is not what was put",
}


class LeasedStream:
    """The stream of this name, led by this process until ``close`` or the end of the process.

    Its leases of this queue are extended meanwhile; what a stream of the name held of another one
    ends by itself. They are taken as leased ahead, and nothing in the run folder has their liveness
    name: so they end by expiry or ``end_leases_of(liveness_of(name, queue), ())`` only, and their
    end is no crash of the message, however often drivers are killed. One thread uses it.
    """

    def __init__(self, store: QueueStore, queue: str, name: str, timeout: float) -> None:
        self._store = store
        self._queue = queue
        self._name = name
        self._liveness = liveness_of(name, queue)
        self._timeout = timeout
        self._now = StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK)).now
        self._leadership = Leadership(store, name)
        try:
            # At once: what a killed process left may be about to end.
            store.extend_of(self._liveness, timeout=timeout, now=self._now)
            self._held = dict(_by_token(store.leased_under(self._liveness, queue)))
        except BaseException:
            self._leadership.close()
            raise
        self._heartbeat = LeaseHeartbeat(store, self._liveness, timeout, self._now)

    def ack(self, upto: int) -> None:
        """The sink has everything up to this position."""
        tokens = [token for token in self._held if token <= upto]
        lost = 0
        for at in range(0, len(tokens), LARGEST_BATCH):
            part = tokens[at : at + LARGEST_BATCH]
            held = self._store.ack_many([self._held[token] for token in part], now=self._now)
            lost += held.count(False)
            for token in part:
                del self._held[token]
        if lost:
            log.warning(
                "stream %r: %d messages of %r had lost their lease before they were acknowledged;"
                " they may be delivered again",
                self._name, lost, self._queue,
            )  # fmt: skip

    def lease(self, most: float) -> int:
        """Take up to so many messages more, as far as they fit into one batch; how many it took."""
        taken, size = 0, 0
        while taken < most and size < MOST_BYTES:
            leased = self._lease(int(min(most - taken, LARGEST_BATCH)))
            if not leased:
                break
            self._held |= _by_token(leased)
            taken += len(leased)
            size += size_of(leased)
        return taken

    def held(self) -> int:
        """How many messages it has not acknowledged."""
        return len(self._held)

    def position(self) -> int:
        """Everything that the stream holds was leased up to here; 0 when it holds nothing."""
        return max(self._held, default=0)

    def messages(self, after: int, upto: int) -> list[StoredMessage]:
        """What it holds in this range. What lost its lease belongs to someone else by now."""
        found = self._store.leased_under(self._liveness, self._queue, after=after, upto=upto)
        damaged = dict(_by_token(each for each in found if each.damaged))
        if damaged:
            self._store.dead_letter_many(list(damaged.values()), error=DAMAGED, now=self._now)
            for token in damaged:
                self._held.pop(token, None)
        return [message for message in found if not message.damaged]

    def available(self) -> int:
        """How many messages could be leased one after the other if nothing new came."""
        stats = self._store.stats(self._queue, now=self._now)
        return stats.ready + stats.held

    def close(self) -> None:
        """Lead no more. What is held stays held, for the next process of that name. Idempotent."""
        self._heartbeat.close()
        self._leadership.close()
        self._store.close()

    def _lease(self, wanted: int) -> Sequence[StoredMessage]:
        # Spark asks a hundred times a second: a look is cheaper than a turn at the lock.
        if self._store.qsize(self._queue, now=self._now) == 0:
            return ()
        request = LeaseRequest(
            (self._queue,),
            limit=wanted,
            timeout=self._timeout,
            worker=self._name,
            liveness=self._liveness,
            prefetched=True,
        )
        return self._store.lease(request, now=self._now)


def liveness_of(name: str, queue: str) -> str:
    """The liveness name under which a stream of this name leases from the queue."""
    return f"{name} on {queue}"


def _by_token(messages: Iterable[StoredMessage]) -> Iterator[tuple[int, Receipt]]:
    for message in messages:
        yield message.token, Receipt(message.queue, message.id, message.token)
