"""Seeded operations, most of them plain: what is asked of a queue all the time.

A store may do these in a shorter way, and know in memory what they come to. So they follow each
other without a look between them, in one queue and within moments; then something else happens, and
all of it is compared.
"""

from __future__ import annotations

from typing import Any

from localqueue.outcome import Ack
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.testing.model import ModelReceipt, ReferenceModel
from localqueue.testing.random_operations import WORKERS, RandomOperations, receipt_of
from localqueue.testing.side_by_side import Operation, Planned

QUEUES = ("plain", "plain", "quiet", "priority")
SHARE = 0.93


class PlainOperations(RandomOperations):
    """An endless choice of operations for a model."""

    def __init__(self, seed: int, model: ReferenceModel, now: float) -> None:
        super().__init__(seed, model, now)
        self._plain_queue = QUEUES[0]

    def next(self) -> Operation:
        if self._todo or self._random.random() > SHARE:
            return self._something_else()
        self._number += 1
        at = self._now + self._random.choice((0.0, 0.0, 0.0, 1 / 16, 1 / 4))
        if not self._is_anything_due(at):
            self._now = at
        elif self._random.random() < 0.5:
            # Nobody has told the store that time has passed: it has to see that for itself.
            self._now = at
            return Operation(self._number, at, "lease_at_once", {"request": self._plain_request()})
        verb, arguments = self._random.choice(
            (self._some_puts, self._some_leases, self._some_acks, self._some_of_both)
        )()
        return Operation(self._number, self._now, verb, arguments, in_passing=True)

    def _something_else(self) -> Operation:
        """Anything: mostly in the queue that is used, so that things meet."""
        if not self._todo:
            if self._random.random() < 0.3:
                self._plain_queue = self._random.choice(QUEUES)
            if self._random.random() < 0.7:
                self._family, self._stay = (self._plain_queue,), 1
        return super().next()

    def _is_anything_due(self, at: float) -> bool:
        """Then somebody has to look: a store may sweep when it likes."""
        for queue in self._model.queues.values():
            for message in (*queue.messages.values(), *queue.unread):
                if message.expires_at is not None and message.expires_at <= at:
                    return True
        due = self._model.next_due(self._model.queues)
        return due is not None and due <= at

    def _some_puts(self) -> tuple[str, dict[str, Any]]:
        if self._is_crowded(self._plain_queue):
            return self._some_leases()
        n = self._random.choice((1, 1, 1, 2, 12))
        bodies = [f'"{self._number}-{number}"'.encode() for number in range(n)]
        return "put", {"puts": [Put(self._plain_queue, body) for body in bodies]}

    def _some_leases(self) -> tuple[str, dict[str, Any]]:
        return "lease", {"request": self._plain_request()}

    def _plain_request(self) -> LeaseRequest:
        return LeaseRequest(
            (self._plain_queue,),
            limit=self._random.choice((1, 1, 1, 2, 9)),
            timeout=self._random.choice((1.0, 60.0, 60.0, 600.0)),
            worker=self._random.choice(WORKERS),
            remove=self._random.random() < 0.1,
            prefetched=self._random.random() < 0.3,
        )

    def _some_acks(self) -> tuple[str, dict[str, Any]]:
        receipts = self._held()
        return ("ack", {"receipts": receipts}) if receipts else self._some_leases()

    def _some_of_both(self) -> tuple[str, dict[str, Any]]:
        planned = [Planned(receipt, Ack()) for receipt in self._held()]
        return "settle_and_lease", {"planned": planned, "request": self._plain_request()}

    def _held(self) -> list[ModelReceipt]:
        """Receipts of leases, in the order they were given or in any; some are used already."""
        queue = self._model.queues.get(self._plain_queue)
        leased = queue.in_state("inflight") if queue is not None else []
        if not leased:
            return []
        if self._random.random() < 0.3:
            self._random.shuffle(leased)
        receipts = [receipt_of(message) for message in leased[: self._random.choice((1, 1, 1, 10))]]
        if self._random.random() < 0.05:
            receipts.append(self._random.choice([*self._receipts, receipts[0]]))
        self._receipts.append(receipts[0])
        return receipts
