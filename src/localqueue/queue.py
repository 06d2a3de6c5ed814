"""PersistentQueue: a store under a policy set, with the methods of ``queue.Queue`` and more."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, Full
from typing import Any, Generic, Self, TypeVar

from localqueue.checks import check_count, check_key, check_seconds, check_timeout
from localqueue.clock import SYSTEM_CLOCK, Clock, StoreTime
from localqueue.codec import readable_codecs
from localqueue.errors import (
    ConfigurationError,
    DamagedMessage,
    InvalidArgument,
    InvalidMessage,
    SettingsOverwritten,
    StoreClosed,
    WrongType,
)
from localqueue.fanout import add_subscribers
from localqueue.message import QueueMessage, QueueStats, Receipt
from localqueue.outcome import describe_error
from localqueue.policies.acknowledgement import AcknowledgementPolicy
from localqueue.policies.backpressure import BackpressurePolicy
from localqueue.policies.codec import CodecPolicy
from localqueue.policies.compatibility import Use, check_use, enforce
from localqueue.policies.consumption import ConsumptionPolicy
from localqueue.policies.crash_limit import CrashLimitPolicy
from localqueue.policies.dead_letters import DeadLetterPolicy
from localqueue.policies.deduplication import DeduplicationPolicy
from localqueue.policies.delivery import DeliveryPolicy
from localqueue.policies.dispatch import DispatchPolicy
from localqueue.policies.expiry import ExpiryPolicy
from localqueue.policies.journal import JournalPolicy
from localqueue.policies.leases import DEFAULT_LEASE_TIMEOUT, LeasePolicy
from localqueue.policies.locality import LocalityPolicy
from localqueue.policies.notification import NotificationPolicy, WaitableNotification
from localqueue.policies.ordering import OrderingPolicy
from localqueue.policies.policy_set import QueuePolicySet
from localqueue.policies.resolve import resolve
from localqueue.policies.resolved import SpecLike
from localqueue.policies.routing import RoutingPolicy
from localqueue.policies.semantics import QueueSemantics
from localqueue.policies.subscriptions import SubscriptionPolicy, subscriber_queue_name
from localqueue.put_options import Key, PutMaker, PutOptions
from localqueue.stores.alike import AlikeAnswers
from localqueue.stores.open import as_store, default_path
from localqueue.stores.present import present, present_alike, present_value
from localqueue.stores.protocol import (
    LARGEST_BATCH,
    LARGEST_BATCH_BYTES,
    LONGEST_READER_AGE,
    Cancelled,
    Enqueued,
    Fate,
    JournalEvent,
    JournalReader,
    LeaseAnswer,
    LeaseRequest,
    Put,
    QueueIsFull,
    QueueStore,
    StoredMessage,
)
from localqueue.stores.settings import QueueSettings
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.unfinished import Unfinished
from localqueue.worker_config import PersistentWorkerConfig

T = TypeVar("T")
LOOK_AGAIN = 1.0
"""A waiter looks by itself this often: what time alone changes wakes nobody."""


class PersistentQueue(Generic[T]):
    """A durable queue: what ``put`` returned is stored, and delivered until it is acknowledged.

    ``PersistentQueue("jobs")`` keeps its messages in one SQLite file in the user's data folder; the
    file is opened with the first call, not before. All methods may be called from any thread, and
    any number of processes may use the same queue. Times are those of ``time.time()``.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        spec: SpecLike | None = None,
        store: QueueStore | str | Any = None,
        store_path: str | Path | None = None,
        lease_timeout: float = DEFAULT_LEASE_TIMEOUT,
        lease_policy: LeasePolicy | None = None,
        acknowledgement_policy: AcknowledgementPolicy | None = None,
        dead_letter_policy: DeadLetterPolicy | None = None,
        deduplication_policy: DeduplicationPolicy | None = None,
        maxsize: int = 0,
        retry_defaults: Mapping[str, Any] | None = None,
        semantics: QueueSemantics | None = None,
        locality_policy: LocalityPolicy | None = None,
        consumption_policy: ConsumptionPolicy | None = None,
        delivery_policy: DeliveryPolicy | None = None,
        dispatch_policy: DispatchPolicy | None = None,
        notification_policy: NotificationPolicy | None = None,
        ordering_policy: OrderingPolicy | None = None,
        routing_policy: RoutingPolicy | None = None,
        subscription_policy: SubscriptionPolicy | None = None,
        backpressure: BackpressurePolicy | None = None,
        expiry_policy: ExpiryPolicy | None = None,
        crash_limit_policy: CrashLimitPolicy | None = None,
        journal_policy: JournalPolicy | None = None,
        codec_policy: CodecPolicy | None = None,
        policy_set: QueuePolicySet | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._policies = policies = resolve(
            name=name,
            spec=spec,
            store=store,
            store_path=store_path,
            lease_timeout=lease_timeout,
            maxsize=maxsize,
            retry_defaults=retry_defaults,
            policy_set=policy_set,
            semantics=semantics,
            locality_policy=locality_policy,
            lease_policy=lease_policy,
            acknowledgement_policy=acknowledgement_policy,
            dead_letter_policy=dead_letter_policy,
            deduplication_policy=deduplication_policy,
            delivery_policy=delivery_policy,
            consumption_policy=consumption_policy,
            dispatch_policy=dispatch_policy,
            notification_policy=notification_policy,
            ordering_policy=ordering_policy,
            routing_policy=routing_policy,
            subscription_policy=subscription_policy,
            backpressure=backpressure,
            expiry_policy=expiry_policy,
            crash_limit_policy=crash_limit_policy,
            journal_policy=journal_policy,
            codec_policy=codec_policy,
        )
        self.name = policies.name
        self.semantics = policies.semantics
        self.locality_policy = policies.locality_policy
        self.lease_policy = policies.lease_policy
        self.acknowledgement_policy = policies.acknowledgement_policy
        self.dead_letter_policy = policies.dead_letter_policy
        self.deduplication_policy = policies.deduplication_policy
        self.delivery_policy = policies.delivery_policy
        self.consumption_policy = policies.consumption_policy
        self.dispatch_policy = policies.dispatch_policy
        self.notification_policy = policies.notification_policy
        self.ordering_policy = policies.ordering_policy
        self.routing_policy = policies.routing_policy
        self.subscription_policy = policies.subscription_policy
        self.backpressure = policies.backpressure
        self.expiry_policy = policies.expiry_policy
        self.crash_limit_policy = policies.crash_limit_policy
        self.journal_policy = policies.journal_policy
        self.codec_policy = policies.codec_policy
        self.lease_timeout = policies.lease_timeout
        self.maxsize = policies.maxsize
        self.retry_defaults = policies.retry_defaults

        self._store_path = store_path
        self._store: QueueStore | None = None if store is None else as_store(store)
        self._owns_store = store is None or isinstance(store, str)
        enforce(policies, (self._store or SQLiteQueueStore).capabilities)

        self._clock = clock
        self._first_use = threading.Lock()
        self._time: StoreTime | None = None
        self._settings: tuple[QueueSettings, int] | None = None
        self._overwritten = False
        self._closed = False
        self._unfinished = Unfinished()

    @classmethod
    def from_spec(cls, spec: SpecLike, **options: Any) -> Self:
        """The queue that a spec describes; ``options`` are those of the constructor."""
        return cls(spec=spec, **options)

    def build_worker_config(self, **overrides: Any) -> Any:
        """The worker configuration of this queue's spec, or a plain one."""
        if self._policies.spec is not None:
            return self._policies.spec.build_worker_config(**overrides)
        return PersistentWorkerConfig(**overrides)

    def __repr__(self) -> str:
        return f"PersistentQueue({self.name!r}, store={self._store!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the store if this queue opened it; later calls raise StoreClosed. Idempotent.

        Messages got and not acknowledged are delivered again when their lease ends.
        """
        with self._first_use:
            self._closed = True
            if self._owns_store and self._store is not None:
                self._store.close()

    @property
    def store(self) -> QueueStore:
        """The store, opened if it was not."""
        return self._opened()[0]

    # --- putting --------------------------------------------------------------------------------
    def put(
        self,
        item: T,
        block: bool = True,
        timeout: float | None = None,
        delay: float = 0.0,
        priority: int = 0,
        *,
        dedupe_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        ttl: float | None = None,
        request_id: str | None = None,
    ) -> QueueMessage[T]:
        """Store a message; it is durable when this returns.

        A full queue blocks, for at most ``timeout`` seconds, or does what its backpressure says;
        ``queue.Full`` when there is no room. A taken ``dedupe_key`` or ``request_id`` returns the
        message that has it, with ``duplicate=True``. InvalidMessage when the value cannot be
        stored; nothing is, then. Notification and dispatch run after the message is stored, in
        this order; what they raise reaches the caller, and the message stays.
        """
        make = self._maker(
            PutOptions(delay, priority, dedupe_key, headers, ordering_key, ttl, request_id)
        )
        return self._enqueue([make(item)], [item], block, timeout)[0]

    def put_nowait(self, item: T) -> QueueMessage[T]:
        """``put(item, block=False)``."""
        return self.put(item, block=False)

    def put_many(
        self,
        items: Iterable[T],
        block: bool = True,
        timeout: float | None = None,
        delay: float = 0.0,
        priority: int = 0,
        *,
        dedupe_key: Key = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: Key = None,
        ttl: float | None = None,
    ) -> list[QueueMessage[T]]:
        """Store all of them in one transaction, or none; at most 10,000 or 16 MiB.

        The keys may be functions of the value.
        """
        make = self._maker(PutOptions(delay, priority, dedupe_key, headers, ordering_key, ttl))
        values = list(items)
        puts = [make(item) for item in values]
        return self._enqueue(puts, values, block, timeout) if puts else []

    def put_stream(
        self,
        items: Iterable[T],
        chunk: int = 1000,
        *,
        delay: float = 0.0,
        priority: int = 0,
        dedupe_key: Key = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: Key = None,
        ttl: float | None = None,
        on_progress: Callable[[int], object] | None = None,
    ) -> int:
        """Store any number of messages, a chunk per transaction; how many were put.

        A chunk is all or nothing: after an error the chunks before it are stored, and
        ``on_progress`` was told how many messages those hold.
        """
        most = check_count("chunk", chunk, least=1)
        make = self._maker(PutOptions(delay, priority, dedupe_key, headers, ordering_key, ttl))
        most = min(most, LARGEST_BATCH, self._in_force().maxsize or LARGEST_BATCH)
        done = 0
        for puts, values in _chunks(items, make, most):
            self._enqueue(puts, values, True, None)
            done += len(puts)
            if on_progress is not None:
                on_progress(done)
        return done

    # --- getting --------------------------------------------------------------------------------
    def get(
        self, block: bool = True, timeout: float | None = None, leased_by: str | None = None
    ) -> T:
        """The next value. ``task_done()`` acknowledges it; until then it is leased."""
        message = self.get_message(block, timeout, leased_by)
        if not self._policies.removes_before_delivery:
            self._unfinished.add(message)
        return message.value

    def get_nowait(self) -> T:
        """``get(block=False)``."""
        return self.get(block=False)

    def get_message(
        self, block: bool = True, timeout: float | None = None, leased_by: str | None = None
    ) -> QueueMessage[T]:
        """Lease the next message for ``lease_timeout`` seconds; ``queue.Empty`` when there is none.

        Under AtMostOnceDelivery it is removed before this returns.
        """
        return self._lease(1, block, timeout, leased_by)[0]

    def get_messages(
        self,
        max_messages: int,
        block: bool = True,
        timeout: float | None = None,
        leased_by: str | None = None,
    ) -> list[QueueMessage[T]]:
        """Lease up to this many messages at once: those that are there, at least one.

        ``queue.Empty`` when there is none in time.
        """
        check_count("max_messages", max_messages, least=1)
        return self._lease(min(max_messages, LARGEST_BATCH), block, timeout, leased_by)

    def peek(self, limit: int = 1) -> list[QueueMessage[T]]:
        """The next messages in delivery order, without leasing them."""
        check_count("limit", limit)
        store, when = self._opened()
        return self._present_all(store.peek(self.name, limit, now=when.now))

    # --- settling -------------------------------------------------------------------------------
    def ack(self, message: QueueMessage[T] | str) -> bool:
        """Remove the message. False when its lease is over and changed nothing.

        An id instead of a message acts as an operator: on whatever lease there is.
        """
        return self.ack_many([message])[0]

    def ack_many(self, messages: Iterable[QueueMessage[T] | str]) -> list[bool]:
        """Remove these messages in one transaction; one answer each, as ``ack`` gives it."""
        store, when = self._opened()
        receipts = [self._receipt(message) for message in messages]
        answers = store.ack_many(receipts, now=when.now) if receipts else []
        self._settled(receipts)
        return answers

    def release(
        self,
        message: QueueMessage[T] | str,
        delay: float = 0.0,
        error: BaseException | str | None = None,
    ) -> bool:
        """Deliver the message again, ``delay`` seconds from now; an error is kept with it.

        False when its lease is over; nothing was changed then.
        """
        store, when = self._opened()
        receipt = self._receipt(message)
        seconds = check_seconds("delay", delay)
        kept = describe_error(error)
        answers = store.release_many([receipt], delay=seconds, error=kept, now=when.now)
        self._settled([receipt])
        return answers[0]

    def dead_letter(
        self, message: QueueMessage[T] | str, error: BaseException | str | None = None
    ) -> bool:
        """Take the message out of delivery and keep it. False when its lease is over."""
        store, when = self._opened()
        receipt = self._receipt(message)
        answers = store.dead_letter_many([receipt], error=describe_error(error), now=when.now)
        self._settled([receipt])
        return answers[0]

    def extend(
        self, message: QueueMessage[T], timeout: float | None = None, note: str | None = None
    ) -> LeaseAnswer:
        """Hold the lease for ``timeout`` seconds from now (default: ``lease_timeout``).

        ``LeaseAnswer.LOST`` when it is over already; ``CANCEL_ASKED`` when someone asked the holder
        to stop: the lease is held, and the holder decides.
        """
        store, when = self._opened()
        seconds = self.lease_timeout if timeout is None else timeout
        seconds = check_seconds("timeout", seconds, zero=False)
        if note is not None:
            check_key("note", note)
        return store.extend([self._receipt(message)], timeout=seconds, note=note, now=when.now)[0]

    def cancel(self, message: QueueMessage[T] | str) -> Cancelled:
        """Remove a waiting message, or ask the holder of a leased one to stop.

        ``Cancelled.REMOVED``, ``ASKED``, or ``UNKNOWN``, which is false.
        """
        store, when = self._opened()
        receipt = self._receipt(message)
        return store.cancel(receipt.queue, receipt.id, now=when.now)

    def task_done(self) -> None:
        """Acknowledge a message of ``get()``: the oldest of this thread, else the oldest of all."""
        message = self._unfinished.claim()
        if message is None:
            raise InvalidArgument("task_done() called too many times")
        try:
            self.ack(message)
        except BaseException:
            self._unfinished.give_back(message)
            raise

    def join(self) -> None:
        """Block until every message that ``get()`` of this object handed out is settled."""
        self._unfinished.wait_until_empty()

    # --- looking --------------------------------------------------------------------------------
    def inspect(self, message_id: str) -> QueueMessage[T] | None:
        """One message with its attempt history, without leasing it; None when it is gone."""
        store, _ = self._opened()
        found = store.read(self.name, _checked_id(message_id))
        return None if found is None else self._present_all([found])[0]

    def qsize(self) -> int:
        """Messages that could be leased now."""
        store, when = self._opened()
        return store.qsize(self.name, now=when.now)

    def empty(self) -> bool:
        """Whether nothing could be leased now."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether ``put`` would find no room; of a topic, for one of its subscribers."""
        names = [self.name]
        own = self.store.settings(self.name)
        if own is not None and own[0].fanout is not None:
            names = [subscriber_queue_name(self.name, name) for name in self.subscribers()]
        return any(map(self._has_no_room, names))

    def stats(self) -> QueueStats:
        """Counts of every state, leases by worker, and ages. Reads only."""
        store, when = self._opened()
        stats = store.stats(self.name, now=when.now)
        drift = when.drift()
        for worker in stats.last_seen_by_worker_id:
            stats.last_seen_by_worker_id[worker] += drift
        return stats

    def settings(self) -> QueueSettings:
        """What the store acts on for this queue, the same for every process."""
        store, _ = self._opened()
        found = store.settings(self.name)
        return QueueSettings() if found is None else found[0]

    def pause(self) -> None:
        """Deliver nothing, in any process, until ``resume()``. Puts and settlements go on."""
        self._configure({"paused": True})

    def resume(self) -> None:
        self._configure({"paused": False})

    def record_worker_heartbeat(self, worker_id: str) -> None:
        """Remember that this worker was seen now."""
        if worker_id == "":
            raise InvalidArgument("worker_id cannot be empty")
        store, when = self._opened()
        store.record_worker_heartbeat(self.name, check_key("worker_id", worker_id), now=when.now)

    # --- dead letters ---------------------------------------------------------------------------
    def dead_letters(self, limit: int | None = None) -> list[QueueMessage[T]]:
        """Dead letters, oldest first."""
        if limit is not None:
            check_count("limit", limit)
        store, _ = self._opened()
        return self._present_all(store.dead_letters(self.name, limit=limit))

    def requeue_dead(self, message: QueueMessage[T] | str, delay: float = 0.0) -> bool:
        """Deliver a dead letter again with a fresh budget; False when it is not dead."""
        store, when = self._opened()
        receipt = self._receipt(message)
        seconds = check_seconds("delay", delay)
        return store.requeue_dead_many(receipt.queue, [receipt.id], delay=seconds, now=when.now)[0]

    def prune_dead_letters(self, older_than: float) -> int:
        """Remove dead letters that failed at least this many seconds ago; how many."""
        store, when = self._opened()
        age = check_seconds("older_than", older_than)
        return store.prune_dead_letters(self.name, older_than=age, now=when.now)

    def count_dead_letters_older_than(self, older_than: float) -> int:
        """How many ``prune_dead_letters`` would remove."""
        store, when = self._opened()
        age = check_seconds("older_than", older_than)
        return store.count_dead_letters_older_than(self.name, older_than=age, now=when.now)

    def purge(self) -> int:
        """Remove every message of the queue, whatever its state; how many. Settings stay."""
        store, when = self._opened()
        purged = store.purge(self.name, now=when.now)
        self._unfinished.clear()
        return purged

    # --- journal --------------------------------------------------------------------------------
    def journal(self, after: str | None = None, limit: int = 1000) -> list[JournalEvent]:
        """What happened to this queue, in commit order, after a position (an event has one).

        Without ``after`` from the oldest that is kept. JournalTrimmed when events after the
        position are gone already.
        """
        check_count("limit", limit, least=1)
        store, when = self._opened()
        return _on_the_wall(store.journal([self.name], after=after, limit=limit), when.drift())

    def history(self, message_id: str) -> list[JournalEvent]:
        """The life of one message, also of one that is gone, as far as the journal has it."""
        store, when = self._opened()
        return _on_the_wall(store.history(self.name, _checked_id(message_id)), when.drift())

    def register_reader(
        self, name: str, position: str | None = None, max_age: float = LONGEST_READER_AGE
    ) -> JournalReader:
        """Keep what happens after a position until this reader has it, ``max_age`` seconds at most.

        Without a position from the oldest event that is kept; a reader that is registered already
        stays where it is.
        """
        store, when = self._opened()
        reader = store.register_reader(name, position=position, max_age=max_age, now=when.now)
        return replace(reader, updated_at=reader.updated_at + when.drift())

    def commit_reader(self, name: str, position: str) -> None:
        """The reader has everything up to this position; it never moves back."""
        store, when = self._opened()
        store.commit_reader(name, position, now=when.now)

    def drop_reader(self, name: str) -> bool:
        """Keep nothing for this reader any more; False when it was not registered."""
        return self.store.drop_reader(name)

    def readers(self) -> list[JournalReader]:
        """The journal readers of this queue's store."""
        store, when = self._opened()
        return [
            replace(reader, updated_at=reader.updated_at + when.drift())
            for reader in store.readers()
        ]

    # --- publish/subscribe ----------------------------------------------------------------------
    def subscribe(self, name: str, start: str = "now") -> bool:
        """Add a subscriber that gets what is published from ``start`` on; False if it was one.

        ``"now"``, ``"earliest"`` or a journal position; the past needs Journal(payloads=True).
        """
        self._check_dynamic()
        store, when = self._opened()
        check_use(self._policies, Use(call="subscribe", settings=self.settings(), start=start))
        return store.subscribe(self.name, name, start=start, now=when.now)

    def unsubscribe(self, name: str) -> bool:
        """Stop publishing to a subscriber. Its own messages stay; unread ones of a cursor go.

        One that a static policy names cannot be taken away by an object that has the policy.
        """
        if name in self._policies.subscribers or not self.routing_policy.fanout:
            self._check_dynamic()
        store, when = self._opened()
        return store.unsubscribe(self.name, name, now=when.now)

    def subscribers(self) -> list[str]:
        """The names of the subscribers, in the order they were added."""
        return self.store.subscribers(self.name)

    def subscriber_queue_name(self, subscriber: str) -> str:
        """The name of the queue that a subscriber consumes from."""
        self._check_subscriber(subscriber)
        return subscriber_queue_name(self.name, subscriber)

    def subscriber_queue(self, subscriber: str) -> PersistentQueue[T]:
        """The queue that a subscriber consumes from: same store, same policies, point to point."""
        self._check_subscriber(subscriber)
        store, _ = self._opened()
        return PersistentQueue(
            subscriber_queue_name(self.name, subscriber),
            store=store,
            clock=self._clock,
            **self._policies.subscriber_options(),
        )

    # --- notification and dispatch --------------------------------------------------------------
    def wait_for_notification(self, timeout: float | None = None) -> bool:
        """Block until a put is notified, or something is ready already; False when time is over."""
        policy = self.notification_policy
        if not isinstance(policy, WaitableNotification):
            raise ConfigurationError(
                "wait_for_notification() needs a notification that can be waited for; add"
                " notification_policy=InProcessNotification()"
            )
        check_timeout(timeout)
        policy.clear()
        # Looked after clearing, so that a put in between sets it again.
        return not self.empty() or policy.wait(timeout)

    def dispatch_pending(self, limit: int | None = None) -> int:
        """Lease ready messages and hand them to the dispatch policy; how many were.

        A message is acknowledged when its handlers return. When one raises, its message is released
        with the error, and the error reaches the caller.
        """
        if not self.dispatch_policy.dispatches_on_put:
            raise ConfigurationError(
                "dispatch_pending() needs handlers; add dispatch_policy=CallbackDispatcher([...])"
            )
        if limit is not None:
            check_count("limit", limit)
        done = 0
        while limit is None or done < limit:
            try:
                message = self.get_message(block=False)
            except Empty:
                break
            try:
                self.dispatch_policy.dispatch(message)
            except BaseException as error:
                self.release(message, error=error if isinstance(error, Exception) else None)
                raise
            self.ack(message)
            done += 1
        return done

    # --- inside ---------------------------------------------------------------------------------
    def _opened(self) -> tuple[QueueStore, StoreTime]:
        """The store and its time. The first call opens it and writes what the user configured."""
        when, store = self._time, self._store
        if when is not None and store is not None and not self._closed:
            return store, when
        with self._first_use:
            if self._closed:
                raise StoreClosed(f"queue {self.name!r} was closed")
            if self._store is None:
                self._store = SQLiteQueueStore(self._store_path or default_path())
            store = self._store
            if self._time is None:
                when = StoreTime(self._clock, store.open_clock(self._clock))
                explicit = self._policies.explicit_settings
                if explicit:
                    self._settings = store.configure(self.name, explicit, now=when.now)
                if self.routing_policy.fanout:
                    add_subscribers(store, self._policies, when.now)
                self._time = when
            return store, self._time

    def _configure(self, changes: Mapping[str, Any]) -> None:
        store, when = self._opened()
        self._settings = store.configure(self.name, changes, now=when.now, by="operator")

    def _in_force(self) -> QueueSettings:
        """The settings as this object last saw them; the store has the last word."""
        if self._settings is None:
            store, _ = self._opened()
            self._settings = store.settings(self.name)
        return QueueSettings() if self._settings is None else self._settings[0]

    def _maker(self, options: PutOptions) -> PutMaker:
        if callable(options.ordering_key):
            return PutMaker(self._policies, self.settings(), options)
        try:
            return PutMaker(self._policies, self._in_force(), options)
        except InvalidMessage:
            # The row decides what is allowed, and may have changed since this object looked.
            in_force = self.settings()
            if in_force == self._in_force():
                raise
            return PutMaker(self._policies, in_force, options)

    def _enqueue(
        self, puts: Sequence[Put], values: Sequence[T], block: bool, timeout: float | None
    ) -> list[QueueMessage[T]]:
        _, when = self._opened()
        try:
            answers = self._store_when_there_is_room(puts, block, check_timeout(timeout))
        except InvalidMessage:
            # The queue's row may allow less than this object was built with: then say so as well.
            self._notice_settings(None)
            raise
        self._notice_settings(_version_of(answers))
        drift = when.drift()
        if isinstance(answers, AlikeAnswers):
            messages = present_alike(answers, values, drift)
        else:
            messages = [
                self._put_answer(answer, item, drift)
                for answer, item in zip(answers, values, strict=True)
            ]
        if self.notification_policy.notifies_on_put or self.dispatch_policy.dispatches_on_put:
            for answer, message in zip(answers, messages, strict=True):
                self._run_hooks(answer, message, drift)
        pause = 0.0 if isinstance(answers, AlikeAnswers) else max(a.delay for a in answers)
        if pause > 0 and block:
            queues = {stored.queue for a in answers for stored in a.copies or (a.message,)}
            self._pause(pause if timeout is None else min(pause, timeout), queues)
        return messages

    def _pause(self, seconds: float, queues: Iterable[str]) -> None:
        """Let the consumers catch up: until there is room, or the time is over."""
        deadline = time.monotonic() + seconds
        while (remaining := _remaining(deadline)) > 0 and not self._closed:
            # Watched before looking, so that room made in between is not missed.
            waiter = self.store.watch(queues, "room")
            if not any(map(self._has_no_room, queues)):
                return
            waiter.wait(min(remaining, LOOK_AGAIN))

    def _has_no_room(self, queue: str) -> bool:
        store, when = self._opened()
        found = store.settings(queue)
        maxsize = 0 if found is None else found[0].maxsize
        return 0 < maxsize <= store.waiting(queue, now=when.now)

    def _put_answer(self, answer: Enqueued, item: T, drift: float) -> QueueMessage[T]:
        if answer.fate is Fate.DUPLICATE:
            return replace(self._present_all([answer.message])[0], duplicate=True)
        return present_value(answer.message, item, drift, dropped=answer.fate is Fate.DROPPED)

    def _store_when_there_is_room(
        self, puts: Sequence[Put], block: bool, timeout: float | None
    ) -> Sequence[Enqueued]:
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter = None
        while True:
            store, when = self._opened()
            try:
                return store.enqueue_many(puts, now=when.now)
            except QueueIsFull as full:
                remaining = _remaining(deadline)
                if not block or full.overflow != "block" or remaining <= 0:
                    raise Full from None
                self._check_it_can_fit(full.queue, puts)
                if waiter is not None:
                    waiter.wait(min(remaining, LOOK_AGAIN))
                # Watched before the next try, so that room made in between is not missed.
                waiter = store.watch([full.queue], "room")

    def _check_it_can_fit(self, queue: str, puts: Sequence[Put]) -> None:
        found = self.store.settings(queue)
        if found is not None and 0 < found[0].maxsize < len(puts):
            raise InvalidMessage(
                f"a batch of {len(puts):,} never fits into a queue of {found[0].maxsize:,};"
                " put_stream puts it in chunks that do"
            )

    def _run_hooks(self, answer: Enqueued, message: QueueMessage[T], drift: float) -> None:
        """Notify, then dispatch, what was stored now: once per copy of a publication."""
        if answer.fate is not Fate.STORED:
            return
        copies = [message]
        if answer.copies:
            copies = [present_value(copy, message.value, drift) for copy in answer.copies]
        for stored in copies:
            if self.notification_policy.notifies_on_put:
                self.notification_policy.notify(stored)
            if self.dispatch_policy.dispatches_on_put:
                self.dispatch_policy.dispatch(stored)

    def _notice_settings(self, version: int | None) -> None:
        """Another process wrote the queue's row since this object last looked."""
        if self._settings is not None and self._settings[1] == version:
            return
        self._settings = self.store.settings(self.name)
        if self._settings is None or self._overwritten:
            return
        in_force = self._settings[0].as_dict()
        changed = {
            name: in_force[name]
            for name, value in self._policies.explicit_settings.items()
            if in_force[name] != value
        }
        if changed:
            self._overwritten = True
            warnings.warn(
                f"queue {self.name!r}: settings were written elsewhere and act now: {changed}",
                SettingsOverwritten,
                stacklevel=4,
            )

    def _lease(
        self, limit: int, block: bool, timeout: float | None, leased_by: str | None
    ) -> list[QueueMessage[T]]:
        seconds = check_timeout(timeout)
        if leased_by is not None:
            check_key("leased_by", leased_by)
        request = LeaseRequest(
            (self.name,),
            limit,
            self.lease_timeout,
            leased_by,
            remove=self._policies.removes_before_delivery,
            codecs=readable_codecs(self.codec_policy),
        )
        deadline = None if seconds is None else time.monotonic() + seconds
        waiter = None
        while True:
            # Asked every time: a queue that was closed meanwhile takes nothing any more.
            store, when = self._opened()
            leased = store.lease(request, now=when.now)
            found = self._delivered(leased)
            if found:
                return found
            if leased:
                # None of them could be decoded; there may be others.
                continue
            remaining = _remaining(deadline)
            if not block or remaining <= 0:
                raise Empty
            if waiter is not None:
                due = store.next_due([self.name])
                pause = LOOK_AGAIN if due is None else min(LOOK_AGAIN, max(0.0, due - when.now()))
                waiter.wait(min(remaining, pause))
            # Watched before the next look, so that a put in between is not missed.
            waiter = store.watch([self.name], "ready")

    def _delivered(self, found: list[StoredMessage]) -> list[QueueMessage[T]]:
        """Decode; what cannot be decoded becomes a dead letter and is not handed out."""
        store, when = self._opened()
        drift = when.drift() if found else 0.0
        messages = []
        for stored in found:
            try:
                messages.append(present(stored, self.codec_policy, drift))
            except DamagedMessage as error:
                receipt = Receipt(stored.queue, stored.id, stored.token)
                store.dead_letter_many([receipt], error=describe_error(error), now=when.now)
        return messages

    def _present_all(self, found: list[StoredMessage]) -> list[QueueMessage[T]]:
        """For looking: a value that cannot be decoded is shown as None."""
        _, when = self._opened()
        drift = when.drift() if found else 0.0
        messages = []
        for stored in found:
            try:
                messages.append(present(stored, self.codec_policy, drift))
            except DamagedMessage:
                damaged = stored._replace(damaged=True)
                messages.append(present(damaged, self.codec_policy, drift))
        return messages

    def _receipt(self, message: QueueMessage[T] | str) -> Receipt:
        if isinstance(message, str):
            return Receipt(self.name, _checked_id(message), None)
        if not isinstance(message, QueueMessage):
            raise WrongType(f"expected a message or its id, not {type(message).__name__}")
        if message.queue == self.name:
            return Receipt(message.queue, message.id, message.token)
        in_force = self._in_force()
        elsewhere = in_force.overflow == "overflow" or (
            in_force.fanout is not None and message.queue.startswith(f"{self.name}.")
        )
        if not elsewhere:
            raise InvalidArgument(
                f"message {message.id} belongs to queue {message.queue!r}, not to {self.name!r}"
            )
        return message.receipt

    def _settled(self, receipts: Iterable[Receipt]) -> None:
        self._unfinished.discard(receipts)

    def _check_dynamic(self) -> None:
        if not self._policies.dynamic_subscriptions:
            raise ConfigurationError(
                "subscribers can be added and removed with"
                " subscription_policy=DynamicFanoutSubscriptions() only"
            )

    def _check_subscriber(self, subscriber: str) -> None:
        if not self.subscription_policy.subscriptions:
            raise ConfigurationError("queue does not have configured subscribers")
        known: Sequence[str] = self._policies.subscribers
        if self._policies.dynamic_subscriptions:
            known = self.subscribers()
        if subscriber not in known:
            raise InvalidArgument(f"unknown subscriber {subscriber!r}")


def _chunks(items: Iterable[T], make: PutMaker, most: int) -> Iterator[tuple[list[Put], list[T]]]:
    """The puts of a stream in batches that fit one transaction, with their values."""
    puts: list[Put] = []
    values: list[T] = []
    size = 0
    for item in items:
        put = make(item)
        if len(puts) >= most or (puts and size + len(put.body) > LARGEST_BATCH_BYTES):
            yield puts, values
            puts, values, size = [], [], 0
        puts.append(put)
        values.append(item)
        size += len(put.body)
    if puts:
        yield puts, values


def _version_of(answers: Sequence[Enqueued]) -> int:
    if isinstance(answers, AlikeAnswers):
        return answers.settings_version
    return answers[0].settings_version


def _remaining(deadline: float | None) -> float:
    return math.inf if deadline is None else deadline - time.monotonic()


def _checked_id(message_id: object) -> str:
    if not isinstance(message_id, str):
        raise WrongType(f"a message id is a string, not {type(message_id).__name__}")
    # An id that is no text belongs to no message; SQLite would not take it.
    return message_id if message_id.isascii() else ""


def _on_the_wall(events: list[JournalEvent], drift: float) -> list[JournalEvent]:
    if not drift:
        return events
    return [
        event._replace(
            at=event.at + drift,
            enqueued_at=None if event.enqueued_at is None else event.enqueued_at + drift,
            leased_at=None if event.leased_at is None else event.leased_at + drift,
        )
        for event in events
    ]
