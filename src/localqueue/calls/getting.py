"""Getting: lease, wait while there is nothing, decode."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from queue import Empty
from typing import Any

from localqueue.calls.attachment import Attachment
from localqueue.calls.batches import LARGE, LARGE_BYTES
from localqueue.calls.face import Face
from localqueue.calls.patience import deadline_in, remaining, until_next_look
from localqueue.checks import check_count, check_key, check_timeout
from localqueue.clock import StoreTime
from localqueue.codec import readable_codecs
from localqueue.errors import DamagedMessage, StoreError
from localqueue.message import QueueMessage, Receipt
from localqueue.outcome import describe_error
from localqueue.stores.leased import LeasedTogether, size_of
from localqueue.stores.present import present_leased, present_only
from localqueue.stores.protocol import LARGEST_BATCH, LeaseRequest, StoredMessage, Waiter


class Getting:
    """What get, get_message and get_messages do."""

    def __init__(self, attachment: Attachment, face: Face) -> None:
        self._attachment = attachment
        self._face = face
        self._codec = attachment.policies.codec_policy
        self._removes = attachment.policies.removes_before_delivery
        self._emitter = attachment.emitter
        self._request = self._make_request(1, None)

    async def get(
        self, block: bool, timeout: float | None, leased_by: str | None
    ) -> QueueMessage[Any]:
        """The next message; the caller settles it with ``task_done``."""
        message = await self.get_message(block, timeout, leased_by)
        if not self._removes:
            self._attachment.unfinished.add(message, self._face.caller())
        return message

    async def get_message(
        self,
        block: bool,
        timeout: float | None,
        leased_by: str | None,
        liveness: str | None = None,
    ) -> QueueMessage[Any]:
        """``liveness`` is the name of a worker's sign of life: its death ends the lease."""
        return (await self._next(1, block, timeout, leased_by, liveness))[0]

    async def get_messages(
        self, max_messages: int, block: bool, timeout: float | None, leased_by: str | None
    ) -> list[QueueMessage[Any]]:
        check_count("max_messages", max_messages, least=1)
        return await self._next(min(max_messages, LARGEST_BATCH), block, timeout, leased_by)

    async def _next(
        self,
        limit: int,
        block: bool,
        timeout: float | None,
        leased_by: str | None,
        liveness: str | None = None,
    ) -> list[QueueMessage[Any]]:
        deadline = None if timeout is None else deadline_in(check_timeout(timeout))
        request = self._request
        if limit != request.limit or leased_by != request.worker or liveness != request.liveness:
            if leased_by is not None:
                check_key("leased_by", leased_by)
            # Whoever gets again asks for the same.
            request = self._request = self._make_request(limit, leased_by, liveness)
        when = self._attachment.when or await self._face.open()
        now = when.now
        while True:
            leased = await self._face.ask(lambda store: store.lease(request, now=now))
            if not leased:
                if not block:
                    raise Empty
                leased = await self._awaited(request, when, deadline)
            found = await self._delivered(leased, when)
            if found:
                return found
            # None of them could be decoded; there may be others.

    def _make_request(
        self, limit: int, leased_by: str | None, liveness: str | None = None
    ) -> LeaseRequest:
        return LeaseRequest(
            (self._attachment.name,),
            limit,
            self._attachment.policies.lease_timeout,
            leased_by,
            liveness,
            remove=self._removes,
            codecs=readable_codecs(self._codec),
        )

    async def _awaited(
        self, request: LeaseRequest, when: StoreTime, deadline: float | None
    ) -> Sequence[StoredMessage]:
        """Lease as soon as there is something; ``queue.Empty`` at the deadline."""
        face, names = self._face, request.queues
        waiter: Waiter | None = None
        try:
            while (left := remaining(deadline)) > 0:
                if waiter is None:
                    # Watched before the next look, so that a put in between is not missed.
                    waiter = await face.ask(lambda store: store.watch(names, "ready"))
                else:
                    due = await face.ask(lambda store: store.next_due(names))
                    due_in = math.inf if due is None else due - when.now()
                    await face.wait(waiter, until_next_look(left, due_in))
                leased = await face.ask(lambda store: store.lease(request, now=when.now))
                if leased:
                    return leased
            raise Empty
        finally:
            # Before the message is worked on: the next one may be told only now.
            if waiter is not None:
                waiter.close()

    async def _delivered(
        self, leased: Sequence[StoredMessage], when: StoreTime
    ) -> list[QueueMessage[Any]]:
        """Decode; what cannot be decoded becomes a dead letter and is not handed out."""
        drift, told = when.drift(), False
        try:
            if (
                type(leased) is LeasedTogether
                and len(leased.ids) == 1
                and self._emitter.announce is None
                and (only := present_only(leased, self._codec, drift)) is not None
            ):
                return [only]
            if len(leased) < LARGE and size_of(leased) < LARGE_BYTES:
                messages, damaged = present_leased(leased, self._codec, drift)
            else:
                messages, damaged = await self._face.run(
                    lambda: present_leased(leased, self._codec, drift)
                )
            for receipt, error in damaged:
                await self._bury(receipt, error, when)
            if (announce := self._emitter.announce) is not None:
                told = True
                tell = partial(announce.leased, messages, removed=self._removes)
                tell() if len(messages) < LARGE else await self._face.run(tell)
        except BaseException:
            # Cancelled, or the store is in trouble: nobody will see what was leased.
            await self._give_back(leased, when)
            if told and (announce := self._emitter.announce) is not None and not self._removes:
                announce.given_back(leased)
            raise
        return messages

    async def _bury(self, receipt: Receipt, error: DamagedMessage, when: StoreTime) -> None:
        described = describe_error(error)
        await self._face.ask(
            lambda store: store.dead_letter_many([receipt], error=described, now=when.now)
        )
        if (announce := self._emitter.announce) is not None:
            announce.damaged(receipt, error)

    async def _give_back(self, leased: Sequence[StoredMessage], when: StoreTime) -> None:
        receipts = [_receipt(stored) for stored in leased]
        with contextlib.suppress(StoreError):
            await self._face.ask(lambda store: store.release_many(receipts, now=when.now))


def _receipt(stored: StoredMessage) -> Receipt:
    return Receipt(stored.queue, stored.id, stored.token)
