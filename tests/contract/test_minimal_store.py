"""A custom store with only the simple verbs passes the simple part of the contract."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from localqueue.errors import (
    DuplicateConflict,
    InvalidMessage,
    StoreClosed,
    UnsupportedByStore,
)
from localqueue.message import QueueMessage, QueueStats, Receipt
from localqueue.outcome import Ack, Crashed
from localqueue.stores.minimal import MinimalStore, SimpleStore
from localqueue.stores.protocol import (
    Atomicity,
    Fate,
    QueueIsFull,
    QueueStore,
    Settle,
    Settled,
    StoreCapabilities,
)
from localqueue.stores.records import RecordChange
from localqueue.testing import ManualClock
from localqueue.testing.store_contract import SimpleStoreContract
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    answer,
    drain,
    lease,
    lease_one,
    new_put,
    put,
    put_all,
    receipt,
    release,
)

Message = QueueMessage[Any]
Error = dict[str, Any] | None
Moment = float | None


class DictStore:
    """The simple verbs over a dictionary: all that a custom store needs."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], Message] = {}
        self.seen: dict[str, float] = {}

    def enqueue(
        self,
        queue: str,
        value: Any,
        *,
        available_at: float,
        dedupe_key: Any = None,
        priority: int = 0,
    ) -> Message:
        for message in self._of(queue):
            if dedupe_key is not None and message.dedupe_key == dedupe_key:
                return message
        new = Message(uuid.uuid4().hex, value, queue, created_at=time.time(), priority=priority)
        return self._save(new, available_at=available_at, dedupe_key=dedupe_key)

    def dequeue(
        self, queue: str, *, lease_timeout: float, now: float, leased_by: str | None = None
    ) -> Message | None:
        ready = [message for message in self._of(queue) if _state(message, now) == "ready"]
        if not ready:
            return None
        first = min(ready, key=lambda message: (-message.priority, message.available_at))
        lease = {"leased_until": now + lease_timeout, "leased_by": leased_by}
        return self._save(first, state="inflight", attempts=first.attempts + 1, **lease)

    def get(self, queue: str, key: str) -> Message | None:
        return self.messages.get((queue, key))

    def ack(self, queue: str, key: str) -> bool:
        return self.messages.pop((queue, key), None) is not None

    def release(
        self,
        queue: str,
        key: str,
        *,
        available_at: float,
        last_error: Error = None,
        failed_at: Moment = None,
    ) -> bool:
        return self._end(queue, key, "ready", last_error, failed_at, available_at=available_at)

    def dead_letter(
        self, queue: str, key: str, *, last_error: Error = None, failed_at: Moment = None
    ) -> bool:
        return self._end(queue, key, "dead", last_error, failed_at)

    def qsize(self, queue: str, *, now: float) -> int:
        return self.stats(queue, now=now).ready

    def empty(self, queue: str, *, now: float) -> bool:
        return self.qsize(queue, now=now) == 0

    def stats(self, queue: str, *, now: float) -> QueueStats:
        messages = self._of(queue)
        states = Counter(_state(message, now) for message in messages)
        workers = Counter(m.leased_by for m in messages if m.leased_by is not None)
        ready, delayed = states["ready"], states["delayed"]
        inflight, dead, total = states["inflight"], states["dead"], len(messages)
        return QueueStats(ready, delayed, inflight, dead, total, dict(workers), {}, self.seen)

    def record_worker_heartbeat(self, queue: str, worker_id: str, *, now: float) -> None:
        self.seen = self.seen | {worker_id: now}

    def dead_letters(self, queue: str, *, limit: int | None = None) -> list[Message]:
        dead = [message for message in self._of(queue) if message.state == "dead"]
        return sorted(dead, key=lambda message: message.failed_at or message.created_at)[:limit]

    def requeue_dead(self, queue: str, key: str, *, available_at: float) -> bool:
        is_dead = any(message.id == key for message in self.dead_letters(queue))
        return is_dead and self.release(queue, key, available_at=available_at)

    def count_dead_letters_older_than(self, queue: str, *, older_than: float, now: float) -> int:
        dead = self.dead_letters(queue)
        return sum((m.failed_at or m.created_at) <= now - older_than for m in dead)

    def prune_dead_letters(self, queue: str, *, older_than: float, now: float) -> int:
        count = self.count_dead_letters_older_than(queue, older_than=older_than, now=now)
        return sum(self.ack(queue, m.id) for m in self.dead_letters(queue, limit=count))

    def purge(self, queue: str) -> int:
        return sum(self.ack(queue, message.id) for message in self._of(queue))

    def _of(self, queue: str) -> list[Message]:
        return [message for message in self.messages.values() if message.queue == queue]

    def _save(self, message: Message, **changes: Any) -> Message:
        saved = replace(message, **changes)
        self.messages[message.queue, message.id] = saved
        return saved

    def _end(
        self, queue: str, key: str, state: str, error: Error, failed_at: Moment, **changes: Any
    ) -> bool:
        message = self.get(queue, key)
        if message is None:
            return False
        if error is not None:
            changes |= {"last_error": error, "failed_at": failed_at}
        self._save(message, state=state, leased_until=None, leased_by=None, **changes)
        return True


def _state(message: Message, now: float) -> str:
    """As if leases that ran out had been returned already."""
    if message.state == "inflight":
        assert message.leased_until is not None
        return "inflight" if message.leased_until > now else "ready"
    if message.state == "ready" and message.available_at > now:
        return "delayed"
    return message.state


@pytest.fixture
def store() -> QueueStore:
    return MinimalStore(DictStore())


class TestMinimalStore(SimpleStoreContract):
    """The contract's own tests, with the fixture above."""


class TestWhatMinimalStoreAdds:
    """Beyond the contract: what is emulated, and what is refused with a sentence."""

    def test_an_object_with_the_simple_verbs_is_a_simple_store(self) -> None:
        custom: SimpleStore = DictStore()

        assert MinimalStore(custom).capabilities == StoreCapabilities()

    def test_capabilities_are_those_that_the_object_declares(self) -> None:
        class Durable(DictStore):
            capabilities = StoreCapabilities(survives_restart=True, transactional=Atomicity.STORE)

        assert MinimalStore(Durable()).capabilities is Durable.capabilities

    def test_store_time_is_wall_time(self, store: QueueStore) -> None:
        clock = ManualClock(NOW)
        clock.advance(5)

        assert clock.steady() + store.open_clock(clock) == NOW + 5

    @pytest.mark.parametrize(
        "verb",
        [
            lambda store: store.extend([], timeout=1.0, now=NOW),
            lambda store: store.peek(QUEUE, 1, now=NOW),
            lambda store: store.subscribe("news", "a", now=NOW),
            lambda store: store.unsubscribe("news", "a", now=NOW),
            lambda store: store.load_record("k", "a", now=NOW),
            lambda store: store.change_records([], now=NOW),
            lambda store: store.enqueue_with_records([], [RecordChange("k", "a", b"1")], now=NOW),
            lambda store: store.scan_records("k", now=NOW),
            lambda store: store.prune_records("k", now=NOW),
            lambda store: store.journal(),
            lambda store: store.journal_end(),
            lambda store: store.history(QUEUE, "0" * 32),
            lambda store: store.register_reader("r", now=NOW),
            lambda store: store.commit_reader("r", "0", now=NOW),
            lambda store: store.drop_reader("r"),
            lambda store: store.readers(),
        ],
    )
    def test_a_verb_beyond_the_simple_ones_is_refused(
        self, store: QueueStore, verb: Callable[[QueueStore], object]
    ) -> None:
        with pytest.raises(UnsupportedByStore, match="only the simple verbs cannot"):
            verb(store)

    @pytest.mark.parametrize(
        "option",
        [
            {"headers": b"{}"},
            {"ttl": 5.0},
            {"codec": "bytes"},
            {"dedupe_key": "k", "dedupe_window": 60.0},
            {"request_id": "r"},
            {"id": "0" * 32},
        ],
        ids=lambda option: next(reversed(option)),
    )
    def test_a_put_that_asks_for_more_is_refused_with_its_whole_batch(
        self, store: QueueStore, option: dict[str, Any]
    ) -> None:
        with pytest.raises(UnsupportedByStore):
            store.enqueue_many([new_put("plain"), new_put("more", **option)], now=NOW)

        assert store.stats(QUEUE, now=NOW).total == 0

    def test_an_ordering_key_is_refused(self, store: QueueStore) -> None:
        with pytest.raises(InvalidMessage):
            put(store, ordering_key="k")

    @pytest.mark.parametrize(
        "changes",
        [
            {"ordering": "per-key"},
            {"overflow": "drop-oldest"},
            {"ttl": 5.0},
            {"fanout": "copy"},
            {"journal_payloads": True},
            {"crash_limit": 5},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_a_setting_that_could_not_act_is_refused(
        self, store: QueueStore, changes: dict[str, Any]
    ) -> None:
        with pytest.raises(UnsupportedByStore):
            store.configure(QUEUE, changes, now=NOW)

    def test_a_settlement_with_records_is_refused_and_the_lease_stays(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store)
        settle = Settle(receipt(leased), Ack(), records=(RecordChange("k", "a", b"1"),))

        with pytest.raises(UnsupportedByStore):
            store.settle(settle, now=NOW)

        assert store.ack_many([receipt(leased)], now=NOW) == [True]

    def test_follow_ups_of_a_settlement_are_stored_beyond_the_capacity(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "reject"}, now=NOW)
        put(store, "first")
        leased = lease_one(store)
        put(store, "second")

        settle = Settle(receipt(leased), Ack(), puts=(new_put("follow-up"),))

        assert store.settle(settle, now=NOW) is Settled.DONE
        assert drain(store) == ["second", "follow-up"]

    def test_a_stale_settlement_stores_no_follow_up(self, store: QueueStore) -> None:
        message = put(store)
        stale = Receipt(QUEUE, message.id, 5)

        settled = store.settle(Settle(stale, Ack(), puts=(new_put("more"),)), now=NOW)

        assert settled is Settled.STALE
        assert store.stats(QUEUE, now=NOW).total == 1

    def test_a_crash_is_delivered_again_and_counted_as_a_failure(self, store: QueueStore) -> None:
        waiting = put(store)
        crashed = Settle(Receipt(QUEUE, waiting.id, None), Crashed(BOOM))
        assert store.settle(crashed, now=NOW) is Settled.STALE
        leased = lease_one(store)

        assert store.settle(Settle(receipt(leased), Crashed(BOOM)), now=NOW) is Settled.DONE

        again = lease_one(store)
        assert (again.last_error, again.attempts, again.crashes) == (BOOM, 2, 0)

    def test_it_knows_no_liveness_names(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, liveness="worker-1", prefetched=True)

        assert store.run_folder is None
        assert store.extend_of("worker-1", timeout=30.0, now=NOW) == 0
        assert store.end_leases_of("worker-1", [leased.id], now=NOW) == 0
        with pytest.raises(UnsupportedByStore):
            store.leased_under("worker-1", QUEUE)
        assert store.ack_many([receipt(leased)], now=NOW) == [True]

    def test_the_holder_of_a_lease_cannot_be_asked_to_stop(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        with pytest.raises(UnsupportedByStore):
            store.cancel(QUEUE, leased.id, now=NOW)

    def test_what_does_not_fit_goes_to_the_queue_that_takes_it(self, store: QueueStore) -> None:
        settings = {"maxsize": 1, "overflow": "overflow", "overflow_to": "spare"}
        store.configure(QUEUE, settings, now=NOW)
        put(store, "fits")

        assert put(store, "does not").queue == "spare"
        assert drain(store, queue="spare") == ["does not"]

    def test_overflow_that_runs_in_a_circle_ends_in_a_full_queue(self, store: QueueStore) -> None:
        for here, there in (("a", "b"), ("b", "a")):
            settings = {"maxsize": 1, "overflow": "overflow", "overflow_to": there}
            store.configure(here, settings, now=NOW)
        put(store, queue="a")
        put(store, queue="b")

        with pytest.raises(QueueIsFull):
            put(store, queue="a")

    def test_what_does_not_fit_becomes_a_dead_letter(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "overflow"}, now=NOW)
        put(store, "fits")

        assert put(store, "does not").state == "dead"
        [dead] = store.dead_letters(QUEUE)
        assert dead.last_error is not None
        assert dead.last_error["type"] == "QueueFull"

    def test_a_duplicate_of_another_processes_put_is_recognised(self) -> None:
        custom = DictStore()
        first = put(MinimalStore(custom), dedupe_key="k")

        second = answer(MinimalStore(custom), dedupe_key="k", now=NOW + 1)

        assert second.fate is Fate.DUPLICATE
        assert second.message.id == first.id

    def test_a_key_with_another_value_is_an_error_where_the_put_says_so(
        self, store: QueueStore
    ) -> None:
        put(store, {"a": 1, "b": 2}, dedupe_key="k")
        same = new_put({"b": 2, "a": 1}, dedupe_key="k", conflict_is_error=True)
        other = new_put({"a": 3}, dedupe_key="k", conflict_is_error=True)

        assert store.enqueue_many([same], now=NOW)[0].fate is Fate.DUPLICATE
        with pytest.raises(DuplicateConflict):
            store.enqueue_many([new_put("new"), other], now=NOW)
        assert store.stats(QUEUE, now=NOW).total == 1

    def test_a_value_that_is_not_json_becomes_a_dead_letter_and_is_not_delivered(self) -> None:
        custom = DictStore()
        custom.enqueue(QUEUE, float("nan"), available_at=NOW)
        custom.enqueue(QUEUE, "good", available_at=NOW)

        assert drain(MinimalStore(custom)) == ["good"]
        [dead] = custom.dead_letters(QUEUE)
        assert dead.last_error is not None
        assert dead.last_error["type"] == "InvalidMessage"

    def test_failed_attempts_are_counted_from_the_objects_history(self) -> None:
        custom = DictStore()
        failed = {"type": "released", "at": NOW, "attempt": 1, "last_error": BOOM}
        message = custom.enqueue(QUEUE, "a", available_at=NOW)
        custom._save(message, attempt_history=[failed, failed])

        assert lease_one(MinimalStore(custom)).failures == 2

    def test_a_batch_is_limited(self, store: QueueStore) -> None:
        with pytest.raises(InvalidMessage):
            put_all(store, range(10_001))

        assert store.stats(QUEUE, now=NOW).total == 0

    def test_queues_are_those_used_through_this_object(self, store: QueueStore) -> None:
        put(store, queue="b")
        store.configure("a", {}, now=NOW)

        assert store.queues() == ["a", "b"]
        assert store.subscribers("a") == []
        assert store.next_due(["a"]) is None

    def test_a_waiter_looks_again_after_a_moment(self, store: QueueStore) -> None:
        waiter = store.watch([QUEUE], "ready")
        waiter.close()

        assert waiter.wait(0.0)

    def test_a_closed_store_says_so(self) -> None:
        class Closing(DictStore):
            closed = 0

            def close(self) -> None:
                self.closed += 1

        custom = Closing()
        store = MinimalStore(custom)
        store.close()
        store.close()

        assert custom.closed == 1
        with pytest.raises(StoreClosed):
            put(store)
        with pytest.raises(StoreClosed):
            lease(store)
        with pytest.raises(StoreClosed):
            release(store)
