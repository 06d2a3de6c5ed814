"""Hands in what ended: settlements in batches, in the transaction that leases the next messages."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from localqueue.errors import StoreBusy, StoreError, StoreFull
from localqueue.message import QueueMessage
from localqueue.outcome import Release, describe_error
from localqueue.stores.protocol import LeaseRequest, Settle, Settled, StoredMessage
from localqueue.workers.aftercare import Aftercare
from localqueue.workers.driver import Ask
from localqueue.workers.execution import ACK
from localqueue.workers.shift import Ended, Shift
from localqueue.workers.source import Sources

log = logging.getLogger("localqueue.workers")

PATIENCE = 0.25
"""How long a store is left alone that was busy or full."""
LAST_PATIENCE = 3.0
"""How long a worker that has to end tries to settle with a store in trouble."""
TRY_AGAIN = 1.0
"""When a message is delivered again whose follow-ups nobody can store."""


class _Batch(NamedTuple):
    """What one transaction settles."""

    acked: list[QueueMessage[Any]]
    ended: list[Ended]

    def settles(self) -> list[Settle]:
        settles = [Settle(message.receipt, ACK) for message in self.acked]
        settles += [one.settle for one in self.ended if one.settle is not None]
        return settles


def _together(left: _Batch, new: _Batch) -> _Batch:
    """Each message once: what ended after all was taken back for nothing."""
    ended = {id(message) for message in new.acked} | {id(one.message) for one in new.ended}
    return _Batch(
        [message for message in left.acked if id(message) not in ended] + new.acked,
        [one for one in left.ended if id(one.message) not in ended] + new.ended,
    )


class Settling:
    """Whatever ended is settled once; what the store could not take is kept for the next time."""

    def __init__(self, shift: Shift, sources: Sources, ask: Ask, aftercare: Aftercare) -> None:
        self._shift = shift
        self._sources = sources
        self._ask = ask
        self._aftercare = aftercare
        self._left = _Batch([], [])
        self.settled_at = 0.0
        """Of ``time.monotonic()``."""
        self.busy_until = 0.0
        """The store is in trouble, and is left alone until then."""
        self._troubled_since: float | None = None
        self._took = 0.0
        """How long the store let the last attempt wait that was in vain."""

    def is_hopeless(self) -> bool:
        """Whether the store is in trouble for longer than a worker that has to end can wait."""
        since = self._troubled_since
        return since is not None and time.monotonic() - since >= LAST_PATIENCE

    async def settle_if_possible(self, within: float = math.inf) -> None:
        """Nothing while the store is left alone, or if the last vain attempt took longer."""
        if time.monotonic() >= self.busy_until and not (self.is_hopeless() and self._took > within):
            await self.settle()

    def add(self, one: Ended) -> None:
        """This ended without a handler."""
        self._left.ended.append(one)

    def account_for(self, one: Ended, answer: Settled) -> None:
        """The heartbeat settled this, since the foreman could not."""
        self._account_for(one, answer)
        if self._sources.is_anyone_listening():
            self._announce(_Batch([], [one]), [answer])

    def is_anything_left(self) -> bool:
        shift, left = self._shift, self._left
        return bool(shift.acks or shift.ended or left.acked or left.ended)

    def known(self) -> set[int]:
        """The ``id()`` of all messages that ended and are not settled yet."""
        # Copied at one go: runners go on meanwhile.
        acked = self._left.acked + list(self._shift.acks)
        ended = self._left.ended + list(self._shift.ended)
        return {id(message) for message in acked} | {id(one.message) for one in ended}

    async def settle(self) -> None:
        await self.settle_and_lease(None)

    async def settle_and_lease(self, request: LeaseRequest | None) -> Sequence[StoredMessage]:
        """Settle what ended and lease the next, in one transaction.

        Nothing is leased when the store is busy or full; other errors of the store are raised.
        """
        batch = self._collect()
        settles = batch.settles()
        if not settles and request is None:
            self._account(batch, [])
            return ()
        began = time.monotonic()
        try:
            answers, leased = await self._exchange(settles, request)
        except BaseException as error:
            if self._troubled_since is None and isinstance(error, (StoreBusy, StoreFull)):
                # An attempt takes as long as the store waits for others.
                self._troubled_since = began
            self._took = time.monotonic() - began
            self._left = batch
            await self._recover_from(error)
            return ()
        self._troubled_since = None
        self._account(batch, answers)
        return leased

    async def _exchange(
        self, settles: list[Settle], request: LeaseRequest | None
    ) -> tuple[list[Settled], Sequence[StoredMessage]]:
        now = self._sources.when.now
        if request is not None and not settles:
            # A lease need not survive a power cut: alone it does not wait for the disk.
            return [], await self._ask(lambda store: store.lease(request, now=now))
        return await self._ask(lambda store: store.settle_and_lease(settles, request, now=now))

    # --- before the transaction -----------------------------------------------------------------
    def _collect(self) -> _Batch:
        """What ended since the last time, without what was given back or lost meanwhile."""
        left, self._left = self._left, _Batch([], [])
        acks, ended = self._shift.acks, self._shift.ended
        # Not a loop until it is empty: a fast runner could fill it for ever.
        acked = [acks.popleft() for _ in range(len(acks))]
        batch = self._held(_Batch(acked, [ended.popleft() for _ in range(len(ended))]))
        return _together(self._held(left), batch) if left.acked or left.ended else batch

    def _held(self, batch: _Batch) -> _Batch:
        """What is still to be settled of these, each message once."""
        held = self._shift.held
        ended: dict[int, Ended] = {}
        for one in batch.ended:
            if id(one.message) in held:
                # The first counts: an interrupt may come when a delivery has ended already.
                ended.setdefault(id(one.message), one)
            elif one.commit is not None:
                self._aftercare.start(one.commit.dropped, one.message)
        return _Batch([m for m in batch.acked if id(m) in held], list(ended.values()))

    # --- after it -------------------------------------------------------------------------------
    def _account(self, batch: _Batch, answers: Sequence[Settled]) -> None:
        """The transaction is durable: count, and tell who has to know."""
        self.settled_at = time.monotonic()
        acked, held = batch.acked, self._shift.held
        for message in acked:
            held.pop(id(message), None)
        stale = len(acked) - answers[: len(acked)].count(Settled.DONE)
        self._shift.counts["done"] += len(acked) - stale
        if stale:
            for message, answer in zip(acked, answers, strict=False):
                if answer is not Settled.DONE:
                    self._lost(message)
        rest = iter(answers[len(acked) :])
        for one in batch.ended:
            answer = Settled.DONE if one.settle is None else next(rest)
            self._account_for(one, answer)
        if self._sources.is_anyone_listening():
            self._announce(batch, answers)

    def _account_for(self, one: Ended, answer: Settled) -> None:
        message, commit = one.message, one.commit
        self._shift.held.pop(id(message), None)
        if answer is Settled.DONE:
            self._shift.counts[one.counts_as] += 1
            if commit is not None:
                self._aftercare.start(commit.settled, message)
            return
        if commit is not None:
            self._aftercare.start(commit.dropped, message)
        if answer is Settled.STALE:
            self._lost(message)
        else:
            # Another delivery of its key came first: the next one finds out what became of it.
            self._shift.held[id(message)] = message
            self.add(Ended(message, Settle(message.receipt, Release()), "snoozed"))

    def _lost(self, message: QueueMessage[Any]) -> None:
        self._shift.counts["lost"] += 1
        log.warning(
            "message %s of %r: its lease was over, the result is dropped", message.id, message.queue
        )

    def _announce(self, batch: _Batch, answers: Sequence[Settled]) -> None:
        settled = [(message, ACK) for message in batch.acked] + [
            (one.message, one.settle.settlement) for one in batch.ended if one.settle is not None
        ]
        for source in self._sources:
            announce = source.emitter.announce
            if announce is not None:
                own = [
                    (message, settlement, answer is Settled.DONE)
                    for (message, settlement), answer in zip(settled, answers, strict=True)
                    if message.queue == source.name
                ]
                if own:
                    announce.settled(*zip(*own, strict=True))

    # --- when it failed -------------------------------------------------------------------------
    async def _recover_from(self, error: BaseException) -> None:
        """Leave a store in trouble alone for a while; else find the one that is to blame."""
        if isinstance(error, (StoreBusy, StoreFull)):
            log.warning("the store takes nothing now, trying again: %s", error)
            self.busy_until = time.monotonic() + PATIENCE
            return
        has_puts = any(one.settle is not None and one.settle.puts for one in self._left.ended)
        if isinstance(error, StoreError) or not isinstance(error, Exception) or not has_puts:
            raise error
        ended = self._left.ended.copy()
        self._left.ended.clear()
        for one in ended:
            await self._settle_alone(one)

    async def _settle_alone(self, one: Ended) -> None:
        settle = one.settle
        if settle is None:
            self.add(one)
            return
        try:
            answer = await self._ask(lambda store: store.settle(settle, now=self._sources.when.now))
        except StoreError:
            self.add(one)
            raise
        except Exception as error:
            # A follow-up that no queue can take: the delivery failed.
            log.exception("message %s of %r cannot be settled", one.message.id, one.message.queue)
            if one.commit is not None:
                self._aftercare.start(one.commit.dropped, one.message)
            failed = Release(TRY_AGAIN, describe_error(error))
            self.add(Ended(one.message, Settle(settle.receipt, failed), "failed"))
        else:
            self._account_for(one, answer)
