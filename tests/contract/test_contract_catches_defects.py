"""The contract can fail: planted defects, each caught by the sentence that forbids it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from localqueue.clock import Now
from localqueue.errors import RecordConflict
from localqueue.message import NEVER_LEASED, QueueStats, Receipt
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import (
    Cancelled,
    Enqueued,
    JournalEvent,
    LeaseAnswer,
    LeaseRequest,
    Put,
    QueueIsFull,
    QueueStore,
    Settle,
    Settled,
    StoredMessage,
)
from localqueue.stores.records import RecordChange
from localqueue.stores.settings import QueueSettings
from localqueue.testing.store_contract import QueueStoreContract


class AckIgnoresTokens(MemoryQueueStore):
    def ack_many(self, receipts: Sequence[Receipt], *, now: Now) -> list[bool]:
        anyone = [Receipt(receipt.queue, receipt.id, None) for receipt in receipts]
        return super().ack_many(anyone, now=now)


class StaleReceiptsRelease(MemoryQueueStore):
    def release_many(
        self,
        receipts: Sequence[Receipt],
        *,
        delay: float = 0.0,
        error: Mapping[str, Any] | None = None,
        now: Now,
    ) -> list[bool]:
        anyone = [Receipt(receipt.queue, receipt.id, None) for receipt in receipts]
        return super().release_many(anyone, delay=delay, error=error, now=now)


class BatchesAreLooped(MemoryQueueStore):
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        return [super(BatchesAreLooped, self).enqueue_many([put], now=now)[0] for put in puts]


class DedupeForgets(MemoryQueueStore):
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        return super().enqueue_many([put._replace(dedupe_key=None) for put in puts], now=now)


class WindowsAreForgotten(MemoryQueueStore):
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        return super().enqueue_many([put._replace(dedupe_window=0.0) for put in puts], now=now)


class ConflictsPass(MemoryQueueStore):
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        tame = [put._replace(conflict_is_error=False) for put in puts]
        return super().enqueue_many(tame, now=now)


class FanOutGoesOneByOne(MemoryQueueStore):
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        answers: list[Enqueued] = []
        for put in puts:
            subscribers = self.subscribers(put.queue)
            if not subscribers:
                answers += super().enqueue_many([put], now=now)
                continue
            copies = [
                super(FanOutGoesOneByOne, self).enqueue_many(
                    [put._replace(queue=f"{put.queue}.{name}")], now=now
                )
                for name in subscribers
            ]
            answers += copies[0]
        return answers


class LateSubscribersMissThePast(MemoryQueueStore):
    def subscribe(self, topic: str, subscriber: str, *, start: str = "now", now: Now) -> bool:
        return super().subscribe(topic, subscriber, start="now", now=now)


class PriorityIsIgnored(MemoryQueueStore):
    def lease(self, request: LeaseRequest, *, now: Now) -> list[StoredMessage]:
        """Takes everything and hands back what arrived last."""
        everything = list(super().lease(replace(request, limit=10_000), now=now))
        everything.sort(key=lambda message: (message.available_at, message.id))
        self.release_many([_receipt(message) for message in everything[request.limit :]], now=now)
        return everything[: request.limit]


class ReleaseLosesTheError(MemoryQueueStore):
    def release_many(
        self,
        receipts: Sequence[Receipt],
        *,
        delay: float = 0.0,
        error: Mapping[str, Any] | None = None,
        now: Now,
    ) -> list[bool]:
        return super().release_many(receipts, delay=delay, now=now)


class CapacityIsOffByOne(MemoryQueueStore):
    def configure(
        self, queue: str, changes: Mapping[str, Any], *, now: Now, by: str = "worker"
    ) -> tuple[QueueSettings, int]:
        more = dict(changes)
        if more.get("maxsize"):
            more["maxsize"] += 1
        return super().configure(queue, more, now=now, by=by)


class SettlementsAreBounded(MemoryQueueStore):
    def settle(self, settle_: Settle, *, now: Now) -> Settled:
        for put in settle_.puts:
            row = self.settings(put.queue)
            if row and 0 < row[0].maxsize <= self.waiting(put.queue, now=now):
                raise QueueIsFull(put.queue, row[0].overflow)
        return super().settle(settle_, now=now)


class StaleSettlementsLeaveTheirFollowUps(MemoryQueueStore):
    def settle(self, settle_: Settle, *, now: Now) -> Settled:
        self.enqueue_many(settle_.puts, now=now)
        return super().settle(replace(settle_, puts=()), now=now)


class HeldMessagesStayHeldAfterADeadLetter(MemoryQueueStore):
    """Puts a ghost at the head of the key, which nobody ever gets."""

    def dead_letter_many(
        self, receipts: Sequence[Receipt], *, error: Mapping[str, Any] | None = None, now: Now
    ) -> list[bool]:
        buried = super().dead_letter_many(receipts, error=error, now=now)
        for receipt in receipts:
            dead = self.read(receipt.queue, receipt.id)
            if dead is not None and dead.ordering_key is not None:
                for head in self.peek(receipt.queue, 100, now=now):
                    if head.ordering_key == dead.ordering_key:
                        waiting = Receipt(head.queue, head.id, NEVER_LEASED)
                        self.release_many([waiting], delay=1e6, now=now)
        return buried


class KeysRunInParallel(MemoryQueueStore):
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        return super().enqueue_many([put._replace(ordering_key=None) for put in puts], now=now)


class TheJournalSkipsReleases(MemoryQueueStore):
    def journal(
        self, queues: Sequence[str] | None = None, *, after: str | None = None, limit: int = 1000
    ) -> list[JournalEvent]:
        found = super().journal(queues, after=after, limit=limit)
        return [event for event in found if event.kind != "released"]


class TheJournalTakesAnyPosition(MemoryQueueStore):
    def journal(
        self, queues: Sequence[str] | None = None, *, after: str | None = None, limit: int = 1000
    ) -> list[JournalEvent]:
        try:
            return super().journal(queues, after=after, limit=limit)
        except ValueError:
            return super().journal(queues, limit=limit)


class QueuesAreToldOneAfterTheOther(MemoryQueueStore):
    def journal(
        self, queues: Sequence[str] | None = None, *, after: str | None = None, limit: int = 1000
    ) -> list[JournalEvent]:
        if queues is None:
            return super().journal(after=after, limit=limit)
        read = super().journal
        return [event for queue in queues for event in read([queue], after=after, limit=limit)]


class RecordsDoNotCompare(MemoryQueueStore):
    def change_records(self, changes: Sequence[RecordChange], *, now: Now) -> list[int]:
        return super().change_records([replace(change, expect=None) for change in changes], now=now)


class RecordsAreChangedOneByOne(MemoryQueueStore):
    def change_records(self, changes: Sequence[RecordChange], *, now: Now) -> list[int]:
        versions: list[int] = []
        for change in changes:
            versions += super().change_records([change], now=now)
        return versions


class RecordsFollowTheirMessages(MemoryQueueStore):
    def enqueue_with_records(
        self, puts: Sequence[Put], changes: Sequence[RecordChange], *, now: Now
    ) -> Sequence[Enqueued]:
        answers = self.enqueue_many(puts, now=now)
        self.change_records(changes, now=now)
        return answers


class RecordsPrecedeTheirMessages(MemoryQueueStore):
    def enqueue_with_records(
        self, puts: Sequence[Put], changes: Sequence[RecordChange], *, now: Now
    ) -> Sequence[Enqueued]:
        self.change_records(changes, now=now)
        return self.enqueue_many(puts, now=now)


class LeasesAreAlwaysHeld(MemoryQueueStore):
    def extend(
        self, receipts: Sequence[Receipt], *, timeout: float, note: str | None = None, now: Now
    ) -> list[LeaseAnswer]:
        super().extend(receipts, timeout=timeout, note=note, now=now)
        return [LeaseAnswer.HELD] * len(receipts)


class CancelTakesARunningMessageAway(MemoryQueueStore):
    def cancel(self, queue: str, message_id: str, *, now: Now) -> Cancelled:
        removed = self.ack_many([Receipt(queue, message_id, None)], now=now)[0]
        return Cancelled.REMOVED if removed else Cancelled.UNKNOWN


class RequeueKeepsTheSpentBudget(MemoryQueueStore):
    def lease(self, request: LeaseRequest, *, now: Now) -> list[StoredMessage]:
        leased = super().lease(request, now=now)
        return [
            message._replace(failures=1 if message.last_error else message.failures)
            for message in leased
        ]


class SizeCountsDelayedMessages(MemoryQueueStore):
    def qsize(self, queue: str, *, now: Now) -> int:
        return self.waiting(queue, now=now)


class StatsForgetFormerLeases(MemoryQueueStore):
    def stats(self, queue: str, *, now: Now) -> QueueStats:
        stats = super().stats(queue, now=now)
        return replace(stats, leases_by_worker_id=stats.by_worker_id)


class PauseIsIgnored(MemoryQueueStore):
    def configure(
        self, queue: str, changes: Mapping[str, Any], *, now: Now, by: str = "worker"
    ) -> tuple[QueueSettings, int]:
        return super().configure(queue, {**changes, "paused": False}, now=now, by=by)


class MessagesNeverExpire(MemoryQueueStore):
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        return super().enqueue_many([put._replace(ttl=None) for put in puts], now=now)


class EverythingTheDeadHeldIsCharged(MemoryQueueStore):
    def end_leases_of(self, liveness: str, running: Collection[str], *, now: Now) -> int:
        everything = [event.message_id for event in self.journal() if event.message_id]
        return super().end_leases_of(liveness, everything, now=now)


class TheDeadAreCharged(MemoryQueueStore):
    """By expiry: as if nobody had said that they were only prefetched."""

    def lease(self, request: LeaseRequest, *, now: Now) -> Sequence[StoredMessage]:
        return super().lease(replace(request, prefetched=False), now=now)


class NobodyIsCharged(MemoryQueueStore):
    def end_leases_of(self, liveness: str, running: Collection[str], *, now: Now) -> int:
        return super().end_leases_of(liveness, (), now=now)


class KeptLeasesAreShortened(MemoryQueueStore):
    def extend_of(self, liveness: str, *, timeout: float, now: Now) -> int:
        held = [message for message in self._held if message.queue == "jobs"]
        receipts = [_receipt(message) for message in held]
        return len(self.extend(receipts, timeout=timeout, now=now))

    _held: Sequence[StoredMessage] = ()

    def lease(self, request: LeaseRequest, *, now: Now) -> Sequence[StoredMessage]:
        self._held = super().lease(request, now=now)
        return self._held


class EveryLeaseEver(MemoryQueueStore):
    def leased_under(
        self, liveness: str, queue: str, *, after: int = 0, upto: int | None = None
    ) -> list[StoredMessage]:
        return [*self._leased]

    def __init__(self) -> None:
        super().__init__()
        self._leased: list[StoredMessage] = []

    def lease(self, request: LeaseRequest, *, now: Now) -> Sequence[StoredMessage]:
        leased = super().lease(request, now=now)
        self._leased += leased
        return leased


class NobodyIsTold(MemoryQueueStore):
    def watch(self, queues: Any, what: Any) -> Any:
        return super().watch(["somewhere else"], what)


def _receipt(message: StoredMessage) -> Receipt:
    return Receipt(message.queue, message.id, message.token)


CAUGHT_BY: list[tuple[type[MemoryQueueStore], str]] = [
    (AckIgnoresTokens, "a_stale_receipt_cannot_acknowledge_the_new_owners_message"),
    (AckIgnoresTokens, "what_put_returned_may_not_touch_a_lease"),
    (StaleReceiptsRelease, "a_stale_receipt_cannot_release_the_new_owners_message"),
    (BatchesAreLooped, "one_put_that_cannot_be_stored_refuses_the_whole_batch"),
    (BatchesAreLooped, "a_batch_that_does_not_fit_is_refused_as_a_whole"),
    (DedupeForgets, "a_key_is_taken_while_its_message_is_there"),
    (WindowsAreForgotten, "a_key_stays_taken_for_its_window"),
    (ConflictsPass, "a_taken_key_with_another_value_is_an_error_where_the_put_says_so"),
    (FanOutGoesOneByOne, "a_subscriber_that_is_full_refuses_the_publication_for_all"),
    (FanOutGoesOneByOne, "each_subscriber_has_a_dedupe_key_of_its_own"),
    (LateSubscribersMissThePast, "a_new_subscriber_can_begin_with_the_oldest_kept_publication"),
    (PriorityIsIgnored, "a_higher_priority_overtakes_messages_that_arrived_earlier"),
    (ReleaseLosesTheError, "a_release_with_an_error_keeps_it_on_the_message"),
    (ReleaseLosesTheError, "failures_are_counted_only_where_an_error_is_given"),
    (CapacityIsOffByOne, "exactly_as_many_messages_fit_as_the_bound_says"),
    (SettlementsAreBounded, "capacity_never_refuses_a_follow_up"),
    (StaleSettlementsLeaveTheirFollowUps, "a_stale_settlement_writes_nothing_at_all"),
    (HeldMessagesStayHeldAfterADeadLetter, "the_next_of_a_key_follows_however_the_head_left"),
    (KeysRunInParallel, "only_the_first_message_of_a_key_is_delivered"),
    (TheJournalSkipsReleases, "a_release_with_its_error"),
    (TheJournalSkipsReleases, "counts_agree_with_the_journal_and_with_what_is_there"),
    (TheJournalTakesAnyPosition, "what_is_no_position_is_foreign"),
    (TheJournalTakesAnyPosition, "a_position_of_another_store_is_foreign"),
    (
        QueuesAreToldOneAfterTheOther,
        "some_queues_are_told_page_by_page_as_they_are_among_all_others",
    ),
    (RecordsDoNotCompare, "a_save_that_expects_another_version_is_refused"),
    (RecordsAreChangedOneByOne, "changes_are_applied_all_or_none"),
    (RecordsFollowTheirMessages, "a_record_that_is_unlike_keeps_the_messages_out"),
    (RecordsPrecedeTheirMessages, "a_message_that_is_refused_leaves_the_records_alone"),
    (RecordsPrecedeTheirMessages, "a_queue_without_room_leaves_the_records_alone"),
    (LeasesAreAlwaysHeld, "extending_answers_one_by_one"),
    (CancelTakesARunningMessageAway, "a_running_message_is_asked_to_stop_and_not_taken_away"),
    (RequeueKeepsTheSpentBudget, "a_requeued_message_has_a_fresh_budget_and_keeps_its_past"),
    (SizeCountsDelayedMessages, "the_size_of_a_queue_is_what_could_be_leased_now"),
    (StatsForgetFormerLeases, "current_and_former_leases_are_counted_by_worker"),
    (PauseIsIgnored, "a_paused_queue_stores_but_delivers_nothing"),
    (MessagesNeverExpire, "an_expired_message_is_gone"),
    (EverythingTheDeadHeldIsCharged, "only_what_was_running_is_charged"),
    (NobodyIsCharged, "only_what_was_running_is_charged"),
    (NobodyIsCharged, "one_crash_too_many_makes_a_dead_letter"),
    (TheDeadAreCharged, "the_end_of_a_prefetched_lease_is_no_crash"),
    (KeptLeasesAreShortened, "no_lease_becomes_shorter"),
    (KeptLeasesAreShortened, "notes_stay"),
    (EveryLeaseEver, "what_was_settled_or_belongs_to_another_by_now_is_not_found"),
    (EveryLeaseEver, "a_range_of_tokens_leaves_out_its_start_and_has_its_end"),
]


# ValueError is another number of events than the sentence names. Anything else is no answer.
BROKEN = (AssertionError, pytest.fail.Exception, QueueIsFull, RecordConflict, ValueError)


class Contract(QueueStoreContract):
    """Not collected: its sentences are called one at a time, with one store or another."""

    __test__ = False

    def __init__(self, make: Callable[[], QueueStore]) -> None:
        self.make = make

    def another(self) -> QueueStore:
        return self.make()

    def broken(self, sentence: str) -> list[str]:
        """In which of its cases the sentence does not hold, and why."""
        test = getattr(self, f"test_{sentence}")
        reasons = []
        for case in _cases(test):
            store = self.make()
            try:
                test(store=store, **case)
            except BROKEN as reason:
                reasons.append(str(reason))
            finally:
                store.close()
        return reasons


@pytest.mark.parametrize(
    ("defective", "sentence"),
    CAUGHT_BY,
    ids=[f"{defective.__name__}-{sentence}" for defective, sentence in CAUGHT_BY],
)
def test_a_planted_defect_is_caught(defective: type[MemoryQueueStore], sentence: str) -> None:
    assert Contract(MemoryQueueStore).broken(sentence) == [], "holds without the defect"

    assert Contract(defective).broken(sentence) != []


def test_a_waiter_that_nobody_tells_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localqueue.testing.store_contract.waiting.PATIENCE", 0.05)

    assert Contract(MemoryQueueStore).broken("who_waits_for_something_ready_is_told") == []
    assert Contract(NobodyIsTold).broken("who_waits_for_something_ready_is_told") != []


def test_no_part_of_the_contract_hides_a_sentence_of_another() -> None:
    named = Counter(
        name
        for part in QueueStoreContract.__mro__
        for name in vars(part)
        if name.startswith("test_")
    )

    assert [name for name, times in named.items() if times > 1] == []


def _cases(test: Any) -> list[dict[str, Any]]:
    """The arguments of each case that pytest would make of the test."""
    axes: list[list[dict[str, Any]]] = []
    for mark in getattr(test, "pytestmark", []):
        names, values = mark.args[:2]
        if isinstance(names, str):
            names, values = (names,), [(value,) for value in values]
        axes.append([dict(zip(names, value, strict=True)) for value in values])
    return [{k: v for part in case for k, v in part.items()} for case in product(*axes)]
