"""PersistentQueue: a store under a policy set, with the methods of ``queue.Queue`` and more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from localqueue.calls.attachment import Attachment
from localqueue.calls.calls import Calls
from localqueue.calls.face import Blocking, finish
from localqueue.calls.hooks import dispatch
from localqueue.calls.looking import on_the_wall, shown
from localqueue.calls.settling import checked_id
from localqueue.checks import check_count, check_key, check_seconds
from localqueue.clock import SYSTEM_CLOCK, Clock, StoreTime
from localqueue.errors import ConfigurationError, InvalidArgument, WrongType
from localqueue.message import QueueMessage, QueueStats, Receipt
from localqueue.policies.acknowledgement import AcknowledgementPolicy
from localqueue.policies.backpressure import BackpressurePolicy
from localqueue.policies.codec import CodecPolicy
from localqueue.policies.compatibility import Use, check_use, enforce
from localqueue.policies.consumption import ConsumptionPolicy
from localqueue.policies.crash_limit import CrashLimitPolicy
from localqueue.policies.dead_letters import DeadLetterPolicy
from localqueue.policies.deduplication import DeduplicationPolicy
from localqueue.policies.delivery import DeliveryPolicy
from localqueue.policies.dispatch import DispatchPolicy, LeasingDispatchPolicy
from localqueue.policies.expiry import ExpiryPolicy
from localqueue.policies.journal import JournalPolicy
from localqueue.policies.leases import DEFAULT_LEASE_TIMEOUT, LeasePolicy
from localqueue.policies.locality import LocalityPolicy
from localqueue.policies.notification import NotificationPolicy
from localqueue.policies.ordering import OrderingPolicy
from localqueue.policies.policy_set import QueuePolicySet
from localqueue.policies.resolve import resolve
from localqueue.policies.resolved import SpecLike, trait
from localqueue.policies.routing import RoutingPolicy
from localqueue.policies.semantics import QueueSemantics
from localqueue.policies.subscriptions import SubscriptionPolicy, subscriber_queue_name
from localqueue.put_options import Key, put_options
from localqueue.stores.protocol import (
    LONGEST_READER_AGE,
    Cancelled,
    JournalEvent,
    JournalReader,
    LeaseAnswer,
    QueueStore,
    StoredMessage,
)
from localqueue.stores.settings import QueueSettings
from localqueue.telemetry.emitter import Emitter
from localqueue.telemetry.subscription import Listener
from localqueue.worker_config import PersistentWorkerConfig

if TYPE_CHECKING:
    from localqueue.aio import AwaitableQueue

T = TypeVar("T")

REQUEUED_AT_ONCE = 1000
"""How many dead letters go back in one transaction; other writers wait for its end."""


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
        listeners: Iterable[Listener] = (),
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

        self._attachment = Attachment(policies, store, store_path, clock, listeners)
        enforce(policies, self._attachment.capabilities)
        self._calls = Calls(self._attachment, Blocking(self._attachment))
        self._aio: AwaitableQueue[T] | None = None
        if isinstance(self.dispatch_policy, LeasingDispatchPolicy):
            self.dispatch_policy.attach(self)

    @classmethod
    def from_spec(cls, spec: SpecLike, **options: Any) -> Self:
        """The queue that a spec describes; ``options`` are those of the constructor."""
        return cls(spec=spec, **options)

    def build_worker_config(self, **overrides: Any) -> Any:
        """The worker configuration of this queue's spec, or a plain one."""
        if self._policies.spec is not None:
            return self._policies.spec.build_worker_config(**overrides)
        return PersistentWorkerConfig(**overrides)

    def __reduce__(self) -> NoReturn:
        raise WrongType(
            "a queue cannot be sent to another process; open it there, with the same name and store"
        )

    def __repr__(self) -> str:
        return f"PersistentQueue({self.name!r}, store={self._attachment!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the store if this queue opened it; later calls raise StoreClosed. Idempotent.

        Messages got and not acknowledged are delivered again when their lease ends.
        """
        if isinstance(self.dispatch_policy, LeasingDispatchPolicy):
            self.dispatch_policy.detach(self)
        self._attachment.close()

    @property
    def store(self) -> QueueStore:
        """The store, opened if it was not."""
        return self._attachment.store

    @property
    def telemetry(self) -> Emitter:
        """What tells listeners of this object's calls, and traces them."""
        return self._attachment.emitter

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every event of this object from now on; returns how to stop that.

        Listeners are called in the thread that made the call, on the event loop for ``aio``. What
        one raises is logged once and reaches nobody.
        """
        return self._attachment.emitter.listen(listener)

    @property
    def aio(self) -> AwaitableQueue[T]:
        """The same queue for event loops: every call is awaited instead of blocking."""
        if self._aio is None:
            from localqueue.aio import AwaitableQueue

            self._aio = AwaitableQueue(self, self._attachment, self._dispatch_next)
        return self._aio

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
        options = put_options(delay, priority, dedupe_key, headers, ordering_key, ttl, request_id)
        return finish(self._calls.putting.put(item, block, timeout, options))

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
        options = put_options(delay, priority, dedupe_key, headers, ordering_key, ttl)
        return finish(self._calls.putting.put_many(items, block, timeout, options))

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
        options = put_options(delay, priority, dedupe_key, headers, ordering_key, ttl)
        return finish(self._calls.putting.put_stream(items, chunk, options, on_progress))

    # --- getting --------------------------------------------------------------------------------
    def get(
        self, block: bool = True, timeout: float | None = None, leased_by: str | None = None
    ) -> T:
        """The next value. ``task_done()`` acknowledges it; until then it is leased."""
        message: QueueMessage[T] = finish(self._calls.getting.get(block, timeout, leased_by))
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
        return finish(self._calls.getting.get_message(block, timeout, leased_by))

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
        return finish(self._calls.getting.get_messages(max_messages, block, timeout, leased_by))

    def peek(self, limit: int = 1) -> list[QueueMessage[T]]:
        """The next messages in delivery order, without leasing them."""
        check_count("limit", limit)
        store, when = self._opened()
        return self._shown(store.peek(self.name, limit, now=when.now))

    # --- settling -------------------------------------------------------------------------------
    def ack(self, message: QueueMessage[T] | str) -> bool:
        """Remove the message. False when its lease is over and changed nothing.

        An id instead of a message acts as an operator: on whatever lease there is.
        """
        return finish(self._calls.settling.ack(message))

    def ack_many(self, messages: Iterable[QueueMessage[T] | str]) -> list[bool]:
        """Remove these messages in one transaction; one answer each, as ``ack`` gives it."""
        return finish(self._calls.settling.ack_many(messages))

    def release(
        self,
        message: QueueMessage[T] | str,
        delay: float = 0.0,
        error: BaseException | str | None = None,
    ) -> bool:
        """Deliver the message again, ``delay`` seconds from now; an error is kept with it.

        False when its lease is over; nothing was changed then.
        """
        return finish(self._calls.settling.release(message, delay, error))

    def dead_letter(
        self, message: QueueMessage[T] | str, error: BaseException | str | None = None
    ) -> bool:
        """Take the message out of delivery and keep it. False when its lease is over."""
        return finish(self._calls.settling.dead_letter(message, error))

    def extend(
        self, message: QueueMessage[T], timeout: float | None = None, note: str | None = None
    ) -> LeaseAnswer:
        """Hold the lease for ``timeout`` seconds from now (default: ``lease_timeout``).

        ``LeaseAnswer.LOST`` when it is over already; ``CANCEL_ASKED`` when someone asked the holder
        to stop: the lease is held, and the holder decides.
        """
        return finish(self._calls.settling.extend(message, timeout, note))

    def cancel(self, message: QueueMessage[T] | str) -> Cancelled:
        """Remove a waiting message, or ask the holder of a leased one to stop.

        ``Cancelled.REMOVED``, ``ASKED``, or ``UNKNOWN``, which is false.
        """
        return finish(self._calls.settling.cancel(message))

    def task_done(self) -> None:
        """Acknowledge a message of ``get()``: the oldest of this thread, else the oldest of all."""
        finish(self._calls.settling.task_done())

    def join(self) -> None:
        """Block until every message that ``get()`` of this object handed out is settled."""
        self._attachment.unfinished.wait_until_empty()

    # --- looking --------------------------------------------------------------------------------
    def inspect(self, message_id: str) -> QueueMessage[T] | None:
        """One message with its attempt history, without leasing it; None when it is gone."""
        store, _ = self._opened()
        found = store.read(self.name, checked_id(message_id))
        return None if found is None else self._shown([found])[0]

    def qsize(self) -> int:
        """Messages that could be leased now."""
        store, when = self._opened()
        return store.qsize(self.name, now=when.now)

    def empty(self) -> bool:
        """Whether nothing could be leased now."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether ``put`` would find no room; of a topic, for one of its subscribers."""
        return finish(self._calls.room.is_full())

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
        return self._shown(store.dead_letters(self.name, limit=limit))

    def requeue_dead(self, message: QueueMessage[T] | str, delay: float = 0.0) -> bool:
        """Deliver a dead letter again with a fresh budget; False when it is not dead."""
        store, when = self._opened()
        receipt = finish(self._calls.settling.receipt(message))
        seconds = check_seconds("delay", delay)
        (done,) = store.requeue_dead_many(receipt.queue, [receipt.id], delay=seconds, now=when.now)
        if done and (announce := self.telemetry.announce) is not None:
            announce.requeued([receipt], seconds)
        return done

    def requeue_dead_letters(self, limit: int | None = None, *, delay: float = 0.0) -> int:
        """Deliver dead letters again, oldest first, each with a fresh budget; how many.

        All that are dead when this begins, or ``limit`` of them: one that fails again meanwhile
        stays dead. A batch of 1,000 is one transaction, and others get their turn in between.
        After an error the batches before it are delivered again, and another call does the rest.
        """
        if limit is not None:
            check_count("limit", limit)
        seconds = check_seconds("delay", delay)
        store, when = self._opened()
        dead = store.dead_letter_ids(self.name, limit=limit)
        requeued = 0
        for start in range(0, len(dead), REQUEUED_AT_ONCE):
            batch = dead[start : start + REQUEUED_AT_ONCE]
            answers = store.requeue_dead_many(self.name, batch, delay=seconds, now=when.now)
            done = [Receipt(self.name, id_, None) for id_ in compress(batch, answers)]
            requeued += len(done)
            if (announce := self.telemetry.announce) is not None:
                announce.requeued(done, seconds)
        return requeued

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
        self._attachment.unfinished.clear()
        if (announce := self.telemetry.announce) is not None:
            announce.purged(purged)
        return purged

    # --- journal --------------------------------------------------------------------------------
    def journal(self, after: str | None = None, limit: int = 1000) -> list[JournalEvent]:
        """What happened to this queue, in commit order, after a position (an event has one).

        Without ``after`` from the oldest that is kept. JournalTrimmed when events after the
        position are gone already.
        """
        check_count("limit", limit, least=1)
        store, when = self._opened()
        return on_the_wall(store.journal([self.name], after=after, limit=limit), when.drift())

    def history(self, message_id: str) -> list[JournalEvent]:
        """The life of one message, also of one that is gone, as far as the journal has it."""
        store, when = self._opened()
        return on_the_wall(store.history(self.name, checked_id(message_id)), when.drift())

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
        """The queue that a subscriber consumes from: same store, same policies, point to point.

        Whoever listens to this object now, or traces it, does so there too.
        """
        self._check_subscriber(subscriber)
        store, _ = self._opened()
        made: PersistentQueue[T] = PersistentQueue(
            subscriber_queue_name(self.name, subscriber),
            store=store,
            clock=self._attachment.clock,
            listeners=self.telemetry.listeners,
            **self._policies.subscriber_options(),
        )
        if self.telemetry.tracing is not None:
            made.telemetry.trace(self.telemetry.tracing)
        return made

    # --- notification and dispatch --------------------------------------------------------------
    def wait_for_notification(self, timeout: float | None = None) -> bool:
        """Block until a put is notified, or something is ready already; False when time is over."""
        return finish(self._calls.wait_for_notification(timeout))

    def dispatch_pending(self, limit: int | None = None) -> int:
        """Lease ready messages and hand them to the dispatch policy; how many were.

        A message is acknowledged when its handlers return. When one raises, its message is released
        with the error, and the error reaches the caller. A dispatcher that works under leases
        treats failures as workers do, and this waits until it has handled them.
        """
        return finish(self._calls.dispatch_pending(self, self._dispatch_next, limit))

    # --- inside ---------------------------------------------------------------------------------
    def _opened(self) -> tuple[QueueStore, StoreTime]:
        when = self._attachment.when or self._attachment.open()
        return self._attachment.store, when

    def _configure(self, changes: Mapping[str, Any]) -> None:
        store, when = self._opened()
        self._attachment.settings = store.configure(self.name, changes, now=when.now, by="operator")

    def _shown(self, found: Iterable[StoredMessage]) -> list[QueueMessage[T]]:
        _, when = self._opened()
        drift = when.drift()
        return [shown(stored, self.codec_policy, drift) for stored in found]

    def _dispatch_next(self) -> bool:
        """Lease, dispatch and settle one message; False when there is none."""
        try:
            message = self.get_message(block=False)
        except Empty:
            return False
        try:
            self._dispatch(message)
        except BaseException as error:
            self.release(message, error=error if isinstance(error, Exception) else None)
            raise
        self.ack(message)
        return True

    def _dispatch(self, message: QueueMessage[T]) -> None:
        policy, telemetry = self.dispatch_policy, self.telemetry
        # One that runs its handlers elsewhere, under a lease, tells itself when they begin and end.
        if telemetry.active and not trait(policy, "runs_under_lease", False):
            with telemetry.handling(message):
                dispatch(policy, message, telemetry)
        else:
            dispatch(policy, message, telemetry)

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
