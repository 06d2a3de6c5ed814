"""Verbs that do the work of several calls at once: a group of sixteen puts is one insert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from localqueue.message import Receipt
from localqueue.stores.protocol import (
    Enqueued,
    LeaseRequest,
    Put,
    Settle,
    Settled,
    StoredMessage,
)
from localqueue.stores.sqlite.verbs.lease import lease
from localqueue.stores.sqlite.verbs.publish import enqueue_many
from localqueue.stores.sqlite.verbs.settle import ack_many, is_mere_ack, settle_and_lease
from localqueue.stores.sqlite.view import Transaction


class Joinable(Protocol):
    """A verb that knows its like."""

    def __call__(self, tx: Transaction) -> Any: ...

    def joins(self, other: object) -> bool:
        """Whether the two can be done in one."""

    def together(self, tx: Transaction, verbs: Sequence[Any]) -> list[Any]:
        """Do them all; one answer for each. What is raised is the error of one of them."""


class Enqueue:
    """Puts of one call."""

    __slots__ = ("puts",)

    def __init__(self, puts: Sequence[Put]) -> None:
        self.puts = puts

    def __call__(self, tx: Transaction) -> Sequence[Enqueued]:
        return enqueue_many(tx, self.puts)

    def joins(self, other: object) -> bool:
        return isinstance(other, Enqueue) and len(self.puts) == len(other.puts) == 1

    def together(self, tx: Transaction, verbs: Sequence[Enqueue]) -> list[Sequence[Enqueued]]:
        answers = enqueue_many(tx, [verb.puts[0] for verb in verbs])
        return [[answer] for answer in answers]


class Ack:
    """Receipts of one call."""

    __slots__ = ("receipts",)

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self.receipts = receipts

    def __call__(self, tx: Transaction) -> list[bool]:
        return ack_many(tx, self.receipts)

    def joins(self, other: object) -> bool:
        return isinstance(other, Ack)

    def together(self, tx: Transaction, verbs: Sequence[Ack]) -> list[list[bool]]:
        answers = iter(ack_many(tx, [receipt for verb in verbs for receipt in verb.receipts]))
        return [list(islice(answers, len(verb.receipts))) for verb in verbs]


class Lease:
    """One message for each call: the first to ask is the first to get."""

    __slots__ = ("request",)

    def __init__(self, request: LeaseRequest) -> None:
        self.request = request

    def __call__(self, tx: Transaction) -> Sequence[StoredMessage]:
        return lease(tx, self.request)

    def joins(self, other: object) -> bool:
        return (
            isinstance(other, Lease)
            and self.request.limit == 1
            and not self.request.remove
            and self.request == other.request
        )

    def together(self, tx: Transaction, verbs: Sequence[Lease]) -> list[Sequence[StoredMessage]]:
        leased = lease(tx, replace(self.request, limit=len(verbs)))
        answers = [leased[place : place + 1] for place in range(len(leased))]
        while len(answers) < len(verbs):
            # Together they may not have more bytes than one batch; alone each may.
            found = lease(tx, self.request)
            answers += [found] if found else [[]] * (len(verbs) - len(answers))
        return answers


class SettleAndLease:
    """The ends of some leases, and the next ones."""

    __slots__ = ("request", "settles")

    def __init__(self, settles: Sequence[Settle], request: LeaseRequest | None) -> None:
        self.settles = settles
        self.request = request

    def __call__(self, tx: Transaction) -> tuple[list[Settled], Sequence[StoredMessage]]:
        return settle_and_lease(tx, self.settles, self.request)

    def mere_acks(self) -> list[Receipt] | None:
        """The receipts, when all are acknowledged and nothing else becomes durable with it."""
        return (
            [item.receipt for item in self.settles] if all(map(is_mere_ack, self.settles)) else None
        )
