"""A small, slow store in plain Python that says what every store must answer.

It is written to be read, not to be used: dicts and lists, and whatever is due is done at once, for
all queues, in every call. ``side_by_side.py`` runs it next to a real store and compares answers.

Ids and tokens are pairs ``(operation, number)``: they grow as a store's do, and an operation's ids
stay the same when other operations are left out, so that a failing run can be made shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from localqueue.checks import check_queue_name
from localqueue.errors import (
    ConfigurationError,
    DuplicateConflict,
    InvalidMessage,
    RecordConflict,
)
from localqueue.message import QueueStats
from localqueue.outcome import Ack, Cancel, Crashed, DeadLetter, Release, Settlement
from localqueue.stores.protocol import (
    REQUEST_ID_WINDOW,
    Cancelled,
    Fate,
    LeaseAnswer,
    LeaseRequest,
    Put,
    QueueIsFull,
    Settled,
)
from localqueue.stores.records import Record, RecordChange
from localqueue.stores.settings import DEFAULT_SETTINGS, QueueSettings

Id = tuple[int, int]
Token = Id | int | None
"""A pair for a lease, 0 for a message that never had one, None for an operator."""

WAITING = ("ready", "delayed", "held")
LONGEST_OVERFLOW = 8
FROM_THE_BEGINNING: Id = (-1, 0)


class ModelReceipt(NamedTuple):
    queue: str
    id: Id
    token: Token


@dataclass
class ModelMessage:
    """One message. ``state`` is the store's own: delayed and held are told apart from ready."""

    id: Id
    queue: str
    body: bytes
    codec: str
    headers: bytes | None
    created_at: float
    available_at: float
    """When it may go; of a ready message since when it could."""
    made: Id
    """When this queue got it. A publication that is read from a log is made when it is leased."""
    turn: Id
    """Its place within its ordering key."""
    state: str = "ready"
    priority: int = 0
    ordering_key: str | None = None
    dedupe_key: str | None = None
    expires_at: float | None = None
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    token: Id | None = None
    leased_at: float = 0.0
    leased_until: float | None = None
    leased_by: str | None = None
    liveness: str | None = None
    note: str | None = None
    cancel_asked: bool = False
    last_error: dict[str, Any] | None = None
    failed_at: float | None = None
    history: tuple[tuple[str, float, int], ...] = ()
    copy_of: Id | None = None
    """The kept publication that it is a copy of."""

    @property
    def order(self) -> tuple[int, float, Id]:
        return (-self.priority, self.available_at, self.made)

    @property
    def died_at(self) -> float:
        return self.created_at if self.failed_at is None else self.failed_at

    def is_over(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def picture(self) -> ModelMessage:
        """As it is now: later changes of the message do not change what was answered."""
        picture = object.__new__(ModelMessage)
        picture.__dict__.update(self.__dict__)
        return picture

    def remember(self, what: str, at: float) -> None:
        self.history = (*self.history, (what, at, self.attempts))


class ModelAnswer(NamedTuple):
    message: ModelMessage
    fate: Fate
    delay: float = 0.0
    is_there: bool = True
    """False for a message that was let go, or has left while its key's window is open."""


class Taken(NamedTuple):
    """Who has a dedupe key or request id, and until when it outlives its message."""

    id: Id
    fingerprint: int
    until: float


@dataclass
class ModelQueue:
    name: str
    settings: QueueSettings
    version: int = 1
    messages: dict[Id, ModelMessage] = field(default_factory=dict)
    unread: list[ModelMessage] = field(default_factory=list)
    """Of a subscriber: the publications that its cursor has not reached."""
    keys: dict[str, Taken] = field(default_factory=dict)
    requests: dict[str, Taken] = field(default_factory=dict)
    leases_by_worker: dict[str, int] = field(default_factory=dict)
    last_seen: dict[str, float] = field(default_factory=dict)
    subscribers: list[str] = field(default_factory=list)
    kept: list[tuple[Id, Put, float, float | None]] = field(default_factory=list)
    """Of a topic that keeps payloads: what was published and when, and until when it may wait."""

    def in_state(self, *states: str) -> list[ModelMessage]:
        return [message for message in self.messages.values() if message.state in states]

    def deliverable(self) -> list[ModelMessage]:
        """Everything that a lease would find, in its order."""
        return sorted([*self.in_state("ready"), *self.unread], key=lambda message: message.order)

    def waiting(self) -> int:
        return len(self.in_state(*WAITING)) + len(self.unread)

    def find(self, id: Id) -> ModelMessage | None:
        unread = [message for message in self.unread if message.id == id]
        return self.messages.get(id) or (unread[0] if unread else None)

    def remove(self, message: ModelMessage) -> None:
        self.messages.pop(message.id, None)
        self.unread = [entry for entry in self.unread if entry.id != message.id]

    def is_held(self, message: ModelMessage) -> bool:
        """Whether someone is before it in its key. Dead messages hold nobody."""
        return message.ordering_key is not None and any(
            other.ordering_key == message.ordering_key
            and other.state != "dead"
            and other.turn < message.turn
            for other in self.messages.values()
        )

    def picture(self) -> ModelQueue:
        return replace(
            self,
            messages={id: message.picture() for id, message in self.messages.items()},
            unread=[message.picture() for message in self.unread],
            keys=dict(self.keys),
            requests=dict(self.requests),
            leases_by_worker=dict(self.leases_by_worker),
            last_seen=dict(self.last_seen),
            subscribers=list(self.subscribers),
            kept=list(self.kept),
        )


Picture = tuple[dict[str, ModelQueue], dict[tuple[str, str], Record]]


class ReferenceModel:
    """The contract of ``QueueStore``, told a second time."""

    def __init__(self) -> None:
        self.queues: dict[str, ModelQueue] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self.operation = 0
        self._number = 0
        self._swept_at = float("-inf")
        self._takers: dict[Id, str] = {}
        """Which queue took a message when its own was full."""

    def begin(self, operation: int) -> None:
        """Everything made from here on is named after this operation."""
        self.operation, self._number = operation, 0

    def _next(self) -> Id:
        self._number += 1
        return (self.operation, self._number)

    # --- queues -------------------------------------------------------------------------------
    def configure(
        self, name: str, changes: Mapping[str, Any], *, now: float
    ) -> tuple[QueueSettings, int]:
        self.sweep(now)
        check_queue_name(name)
        known = self.queues.get(name)
        settings = (known.settings if known else DEFAULT_SETTINGS).changed(changes)
        if known is None:
            known = self.queues[name] = ModelQueue(name, settings)
        elif settings != known.settings:
            known.settings = settings
            known.version += 1
        return known.settings, known.version

    def settings(self, name: str) -> tuple[QueueSettings, int] | None:
        queue = self.queues.get(name)
        return (queue.settings, queue.version) if queue else None

    def read(self, name: str, id: Id) -> ModelMessage | None:
        queue = self.queues.get(name)
        return queue.find(id) if queue else None

    # --- putting ------------------------------------------------------------------------------
    def enqueue_many(self, puts: Sequence[Put], *, now: float) -> list[ModelAnswer]:
        self.sweep(now)
        before = self._picture(put.queue for put in puts)
        try:
            return [self._enqueue(put, now, bounded=True) for put in puts]
        except Exception:
            self._back_to(before)
            raise

    def enqueue_with_records(
        self, puts: Sequence[Put], changes: Sequence[RecordChange], *, now: float
    ) -> list[ModelAnswer]:
        self.sweep(now)
        before = dict(self.records)
        self._change_records(changes, now)
        try:
            return self.enqueue_many(puts, now=now)
        except Exception:
            self.records = before
            raise

    def _enqueue(self, put: Put, now: float, *, bounded: bool) -> ModelAnswer:
        check_queue_name(put.queue)
        queue = self._use(put.queue)
        if put.priority > 0 and queue.settings.ordering != "priority":
            raise InvalidMessage("priority needs priority ordering")
        if put.ordering_key is not None and queue.settings.ordering != "per-key":
            raise InvalidMessage("an ordering key needs ordering per key")
        made = queue.requests.get(put.request_id or "")
        if made is not None and now < made.until:
            return self._existing(queue, put, made, now)
        if queue.settings.fanout is None:
            answer = self._deliver(queue, put, now, bounded=bounded)
        else:
            answer = self._publish(queue, put, now, bounded=bounded)
        if put.request_id is not None and answer.fate is not Fate.DROPPED:
            until = now + REQUEST_ID_WINDOW
            queue.requests[put.request_id] = Taken(answer.message.id, put.fingerprint, until)
        return answer

    def _deliver(self, queue: ModelQueue, put: Put, now: float, *, bounded: bool) -> ModelAnswer:
        """Into one queue: deduplication, capacity, insert."""
        taken = self._taken(queue, put, now)
        if taken is not None:
            return self._existing(queue, put, taken, now)
        delay = self._throttle(queue) if bounded else 0.0
        target, fate = self._find_room(queue, now) if bounded else (queue, "stored")
        message = self._message(target, put, now)
        if fate == "dropped":
            return ModelAnswer(message, Fate.DROPPED, is_there=False)
        if fate == "dead":
            message.state, message.expires_at = "dead", None
            message.last_error, message.failed_at = {"type": "QueueFull"}, now
        if target is not queue:
            self._takers[message.id] = target.name
        target.messages[message.id] = message
        self._take_key(queue, put, message, now)
        self._tidy(target, now)
        return ModelAnswer(message.picture(), Fate.STORED, delay)

    def _message(self, queue: ModelQueue, put: Put, now: float) -> ModelMessage:
        settings, id = queue.settings, self._next()
        ttl = settings.ttl if put.ttl is None else put.ttl
        message = ModelMessage(
            id=id,
            queue=queue.name,
            body=put.body,
            codec=put.codec,
            headers=put.headers,
            created_at=now,
            available_at=now + put.delay,
            made=id,
            turn=id,
            state="delayed" if put.delay > 0 else "ready",
            priority=put.priority if settings.ordering == "priority" else 0,
            ordering_key=put.ordering_key if settings.ordering == "per-key" else None,
            dedupe_key=put.dedupe_key,
            expires_at=None if ttl is None else now + ttl,
        )
        if queue.is_held(message):
            message.state = "held"
        return message

    # --- deduplication ------------------------------------------------------------------------
    def _taken(self, queue: ModelQueue, put: Put, now: float) -> Taken | None:
        """Who has the key: as long as its message lives, and as long as its window is open."""
        self._forget_keys(queue, now)
        taken = queue.keys.get(put.dedupe_key or "")
        if taken is not None and put.conflict_is_error and taken.fingerprint != put.fingerprint:
            raise DuplicateConflict(f"{put.dedupe_key!r} belongs to another value")
        return taken

    def _forget_keys(self, queue: ModelQueue, now: float) -> None:
        queue.keys = {
            key: taken
            for key, taken in queue.keys.items()
            if self._lives(queue, taken.id) or now < taken.until
        }

    def _lives(self, home: ModelQueue, id: Id) -> bool:
        """Whether it is still there, or where it went when its queue was full."""
        taker = self._takers.get(id)
        return home.find(id) is not None or (
            taker is not None and id in self.queues[taker].messages
        )

    def _overflow_chain(self, queue: ModelQueue) -> list[ModelQueue]:
        chain = [queue]
        while chain[-1].settings.overflow == "overflow":
            after = self.queues.get(chain[-1].settings.overflow_to or "")
            if after is None or after in chain:
                break
            chain.append(after)
        return chain

    def _take_key(self, queue: ModelQueue, put: Put, message: ModelMessage, now: float) -> None:
        if put.dedupe_key is not None:
            until = now + put.dedupe_window
            queue.keys[put.dedupe_key] = Taken(message.id, put.fingerprint, until)

    def _existing(self, queue: ModelQueue, put: Put, taken: Taken, now: float) -> ModelAnswer:
        for place in [*self._overflow_chain(queue), *self._subscribing(queue)]:
            there = place.find(taken.id)
            if there is not None:
                return ModelAnswer(there.picture(), Fate.DUPLICATE)
        gone = self._message(queue, put, now)
        gone.id, gone.state, gone.expires_at = taken.id, "ready", None
        return ModelAnswer(gone, Fate.DUPLICATE, is_there=False)

    # --- capacity -----------------------------------------------------------------------------
    def _find_room(self, queue: ModelQueue, now: float) -> tuple[ModelQueue, str]:
        """Where one more message goes, and as what."""
        for _ in range(LONGEST_OVERFLOW):
            overflow = queue.settings.overflow
            if not self._is_full(queue) or overflow == "throttle":
                return queue, "stored"
            if overflow == "drop-newest":
                return queue, "dropped"
            if overflow == "drop-oldest":
                self._drop_oldest(queue, now)
                return queue, "stored"
            if overflow != "overflow":
                raise QueueIsFull(queue.name, overflow)
            if queue.settings.overflow_to is None:
                return queue, "dead"
            queue = self._use(queue.settings.overflow_to)
        raise QueueIsFull(queue.name, "overflow")

    def _is_full(self, queue: ModelQueue) -> bool:
        return 0 < queue.settings.maxsize <= queue.waiting()

    def _drop_oldest(self, queue: ModelQueue, now: float) -> None:
        ready = queue.deliverable()
        if not ready:
            raise QueueIsFull(queue.name, "drop-oldest")
        lowest = min(message.priority for message in ready)
        queue.remove(next(message for message in ready if message.priority == lowest))
        self._tidy(queue, now)

    def _throttle(self, queue: ModelQueue) -> float:
        settings = queue.settings
        if settings.overflow != "throttle" or not self._is_full(queue):
            return 0.0
        share = (queue.waiting() - settings.maxsize + 1) / settings.maxsize
        return settings.throttle_delay * min(1.0, share)

    # --- fan-out ------------------------------------------------------------------------------
    def _publish(self, topic: ModelQueue, put: Put, now: float, *, bounded: bool) -> ModelAnswer:
        if not topic.subscribers:
            raise InvalidMessage("publish-subscribe routing requires configured subscribers")
        special = put.delay > 0 or put.priority > 0 or put.ordering_key is not None
        if topic.settings.fanout == "cursor" and special:
            raise InvalidMessage("cursor fan-out delivers in publication order")
        if topic.settings.fanout == "copy" or special:
            answers = [
                self._deliver(queue, own, now, bounded=bounded)
                for queue, own in self._shares(topic, put)
            ]
            if any(answer.fate is Fate.STORED for answer in answers):
                publication = self._next()
                self._keep(topic, put, publication, now)
                for answer in answers:
                    if answer.fate is Fate.STORED:
                        stored = self.queues[answer.message.queue].messages[answer.message.id]
                        stored.copy_of = publication
        else:
            answers = self._publish_once(topic, put, now, bounded=bounded)
        delay = max(answer.delay for answer in answers)
        first = min(answers, key=lambda answer: list(Fate).index(answer.fate))
        return first._replace(delay=delay)

    def _publish_once(
        self, topic: ModelQueue, put: Put, now: float, *, bounded: bool
    ) -> list[ModelAnswer]:
        """One id for all; a subscriber that has the key already does not get it."""
        duplicates, takers = [], []
        for queue, own in self._shares(topic, put):
            taken = self._taken(queue, own, now)
            if taken is None:
                takers.append((queue, own))
            else:
                duplicates.append(self._existing(queue, own, taken, now))
        if not takers:
            return duplicates
        delays = [self._throttle(queue) if bounded else 0.0 for queue, _ in takers]
        for queue, _ in takers:
            if bounded:
                self._find_room(queue, now)
        id = self._next()
        expires_at = self._keep(topic, put, id, now)
        answers = []
        for (queue, own), delay in zip(takers, delays, strict=True):
            message = self._reading(queue, own, id, now, expires_at)
            queue.unread.append(message)
            self._take_key(queue, own, message, now)
            answers.append(ModelAnswer(message.picture(), Fate.STORED, delay))
        return answers

    def _shares(self, topic: ModelQueue, put: Put) -> list[tuple[ModelQueue, Put]]:
        """The put as each subscriber gets it, with a dedupe key of its own."""
        return [
            (queue, put._replace(queue=queue.name, dedupe_key=_own_key(put, queue.name)))
            for queue in self._subscribing(topic)
        ]

    def _subscribing(self, topic: ModelQueue) -> list[ModelQueue]:
        return [self.queues[f"{topic.name}.{name}"] for name in topic.subscribers]

    def _keep(self, topic: ModelQueue, put: Put, id: Id, now: float) -> float | None:
        """Keep it for subscribers that come later, if the topic does; when it expires."""
        ttl = topic.settings.ttl if put.ttl is None else put.ttl
        expires_at = None if ttl is None else now + ttl
        if topic.settings.journal_payloads:
            topic.kept.append((id, put, now, expires_at))
        return expires_at

    def _reading(
        self, queue: ModelQueue, put: Put, id: Id, at: float, expires_at: float | None
    ) -> ModelMessage:
        """A publication as a subscriber's message."""
        plain = put._replace(delay=0.0, priority=0, ordering_key=None)
        message = self._message(queue, plain, at)
        message.id = message.made = message.turn = id
        message.expires_at = expires_at
        return message

    def subscribe(
        self, topic: str, subscriber: str, *, after: Id | None = None, now: float
    ) -> bool:
        """``after``: hand out what was published after this id too; None is from now on."""
        self.sweep(now)
        queue = self.queues.get(topic)
        if queue is None or queue.settings.fanout is None:
            raise ConfigurationError(f"{topic!r} is not a topic")
        if subscriber in queue.subscribers:
            return False
        if after is not None and not queue.settings.journal_payloads:
            raise ConfigurationError("an earlier start needs a journal that keeps payloads")
        name = f"{topic}.{subscriber}"
        settings = replace(queue.settings, fanout=None, paused=False)
        self.configure(name, settings.as_dict(), now=now)
        queue.subscribers = [
            name.removeprefix(f"{topic}.")
            for name in self.queues
            if name in [f"{topic}.{other}" for other in [*queue.subscribers, subscriber]]
        ]
        mine = self.queues[name]
        self._forget_keys(mine, now)
        for id, put, at, expires_at in queue.kept:
            # A publication that it still has from an earlier time is not handed out again.
            has = id in mine.messages or any(m.copy_of == id for m in mine.messages.values())
            if after is not None and id > after and not has:
                own = put._replace(dedupe_key=_own_key(put, name))
                mine.unread.append(self._reading(mine, own, id, at, expires_at))
                if own.dedupe_key is not None:
                    mine.keys.setdefault(own.dedupe_key, Taken(id, own.fingerprint, now))
        self._tidy(mine, now)
        return True

    def unsubscribe(self, topic: str, subscriber: str, *, now: float) -> bool:
        self.sweep(now)
        queue = self.queues.get(topic)
        if queue is None or subscriber not in queue.subscribers:
            return False
        queue.subscribers.remove(subscriber)
        self.queues[f"{topic}.{subscriber}"].unread.clear()
        return True

    def subscribers(self, topic: str) -> list[str]:
        queue = self.queues.get(topic)
        return list(queue.subscribers) if queue else []

    # --- leasing ------------------------------------------------------------------------------
    def lease(self, request: LeaseRequest, *, now: float) -> list[ModelMessage]:
        self.sweep(now)
        leased: list[ModelMessage] = []
        for name in request.queues:
            queue = self.queues.get(name)
            if queue is None or queue.settings.paused:
                continue
            for message in queue.deliverable():
                if len(leased) == request.limit:
                    break
                if message.is_over(now):
                    self._expire(queue, message, now)
                else:
                    leased.append(self._lease_one(queue, message, request, now))
            self._tidy(queue, now)
        return leased

    def _lease_one(
        self, queue: ModelQueue, message: ModelMessage, request: LeaseRequest, now: float
    ) -> ModelMessage:
        self._make_row(queue, message)
        message.state = "inflight"
        message.attempts += 1
        message.token = self._next()
        message.leased_at, message.leased_until = now, now + request.timeout
        message.leased_by, message.liveness = request.worker, request.liveness
        message.note = "prefetched" if request.prefetched else None
        message.remember("leased", now)
        if request.worker is not None:
            count = queue.leases_by_worker.get(request.worker, 0)
            queue.leases_by_worker[request.worker] = count + 1
        if request.remove:
            queue.remove(message)
        return message.picture()

    def _make_row(self, queue: ModelQueue, message: ModelMessage) -> None:
        """A publication becomes this subscriber's own message."""
        if message.id not in queue.messages:
            queue.remove(message)
            message.made = self._next()
            queue.messages[message.id] = message

    # --- settling -----------------------------------------------------------------------------
    # ``late``: the time of the lease is over but nobody has looked since, so it still holds.
    def ack_many(
        self, receipts: Iterable[ModelReceipt], *, now: float, late: bool = False
    ) -> list[bool]:
        return [self._settle(receipt, Ack(), now, late=late) for receipt in receipts]

    def release_many(
        self,
        receipts: Iterable[ModelReceipt],
        *,
        delay: float = 0.0,
        error: dict[str, Any] | None = None,
        now: float,
        late: bool = False,
    ) -> list[bool]:
        release = Release(delay, error)
        return [self._settle(receipt, release, now, late=late) for receipt in receipts]

    def dead_letter_many(
        self,
        receipts: Iterable[ModelReceipt],
        *,
        error: dict[str, Any] | None = None,
        now: float,
        late: bool = False,
    ) -> list[bool]:
        return [self._settle(receipt, DeadLetter(error), now, late=late) for receipt in receipts]

    def extend(
        self,
        receipts: Iterable[ModelReceipt],
        *,
        timeout: float,
        note: str | None = None,
        now: float,
        late: bool = False,
    ) -> list[LeaseAnswer]:
        if not late:
            self.sweep(now)
        answers = []
        for receipt in receipts:
            message = self._held_by(receipt)
            if message is None or message.state != "inflight":
                answers.append(LeaseAnswer.LOST)
                continue
            message.leased_until = now + timeout
            message.note = note or (None if message.note == "prefetched" else message.note)
            asked = message.cancel_asked
            answers.append(LeaseAnswer.CANCEL_ASKED if asked else LeaseAnswer.HELD)
        return answers

    def extend_of(self, liveness: str, *, timeout: float, now: float) -> int:
        self.sweep(now)
        held = [message for _, message in self._under(liveness)]
        for message in held:
            message.leased_until = max(message.leased_until or now, now + timeout)
        return len(held)

    def end_leases_of(self, liveness: str, running: Iterable[Id], *, now: float) -> int:
        self.sweep(now)
        held, charged = self._under(liveness), set(running)
        for queue, message in held:
            crashed = message.id in charged
            self._lose_holder(queue, message, "lease_expired", now, crashed=crashed)
        for queue, _ in held:
            self._tidy(queue, now)
        return len(held)

    def _under(self, liveness: str) -> list[tuple[ModelQueue, ModelMessage]]:
        """The leases taken under this liveness name."""
        return [
            (queue, message)
            for queue in self.queues.values()
            for message in queue.in_state("inflight")
            if message.liveness == liveness
        ]

    def settle(
        self,
        receipt: ModelReceipt,
        settlement: Settlement,
        records: Sequence[RecordChange] = (),
        puts: Sequence[Put] = (),
        *,
        now: float,
    ) -> Settled:
        self.sweep(now)
        before = self._picture([receipt.queue, *(put.queue for put in puts)])
        if not receipt.token and self._conflicts(records, now):
            return Settled.CONFLICT
        if not self._settle(receipt, settlement, now):
            return Settled.STALE
        try:
            self._change_records(records, now)
            for put in puts:
                self._enqueue(put, now, bounded=False)
        except RecordConflict:
            self._back_to(before)
            return Settled.CONFLICT
        except Exception:
            self._back_to(before)
            raise
        return Settled.DONE

    def _settle(
        self, receipt: ModelReceipt, settlement: Settlement, now: float, *, late: bool = False
    ) -> bool:
        if not late:
            self.sweep(now)
        message = self._held_by(receipt)
        if message is None:
            return False
        queue = self.queues[message.queue]
        match settlement:
            case Ack() | Cancel():
                queue.remove(message)
            case Release(delay, error, failures):
                if message.state == "dead":
                    return False
                self._release(queue, message, delay, error, now, failures)
            case DeadLetter(error, failures):
                message.failures += failures if error is not None else 0
                self._bury(message, error, now)
            case Crashed(error):
                if message.state != "inflight":
                    return False
                self._lose_holder(queue, message, "released", now, crashed=True, error=error)
        self._tidy(queue, now)
        return True

    def _held_by(self, receipt: ModelReceipt) -> ModelMessage | None:
        message = self.read(receipt.queue, receipt.id)
        if message is None or isinstance(receipt.token, tuple):
            held = message is not None and message.token == receipt.token
            return message if held else None
        self._make_row(self.queues[message.queue], message)
        if receipt.token is None:
            return message
        return message if message.state != "inflight" else None

    def _release(
        self,
        queue: ModelQueue,
        message: ModelMessage,
        delay: float,
        error: dict[str, Any] | None,
        now: float,
        failures: int,
    ) -> None:
        if message.is_over(now):
            self._expire(queue, message, now)
            return
        if error is not None:
            message.failures += failures
            message.last_error, message.failed_at = error, now
        kept = message.note == "prefetched" and not delay and error is None
        self._end_lease(message, "released", now)
        self._wait(queue, message, message.available_at if kept else now + delay, now)

    def _bury(self, message: ModelMessage, error: dict[str, Any] | None, now: float) -> None:
        if error is not None:
            message.last_error, message.failed_at = error, now
        self._end_lease(message, "dead_lettered", now)
        message.state = "dead"

    def _wait(self, queue: ModelQueue, message: ModelMessage, due: float, now: float) -> None:
        message.available_at = due
        message.state = "delayed" if due > now else "ready"
        if queue.is_held(message):
            message.state = "held"

    def _end_lease(self, message: ModelMessage, how: str, now: float) -> None:
        if message.state == "inflight" or how != "released":
            message.remember(how, now)
        message.token = message.leased_until = message.leased_by = None
        message.liveness = message.note = None
        message.cancel_asked = False

    def cancel(self, name: str, id: Id, *, now: float) -> Cancelled:
        self.sweep(now)
        message = self.read(name, id)
        if message is None or message.state == "dead":
            return Cancelled.UNKNOWN
        if message.state == "inflight":
            message.cancel_asked = True
            return Cancelled.ASKED
        queue = self.queues[name]
        queue.remove(message)
        self._tidy(queue, now)
        return Cancelled.REMOVED

    # --- what time does -----------------------------------------------------------------------
    def sweep(self, now: float) -> None:
        """Do everything that is due: leases, delays and expiries."""
        if now == self._swept_at:
            return  # every verb leaves its queues tidy: only time makes something due
        self._swept_at = now
        for queue in self.queues.values():
            for message in queue.in_state("inflight"):
                if message.leased_until is not None and message.leased_until <= now:
                    self._expire_lease(queue, message, now)
            self._tidy(queue, now)
        self._forget_records(now)

    def new_boot(self, *, now: float) -> None:
        """The host started again: nobody can hold a lease, and nobody is blamed for that."""
        for queue in self.queues.values():
            for message in queue.in_state("inflight"):
                message.liveness = None
                self._expire_lease(queue, message, now)
            self._tidy(queue, now)

    def _expire_lease(self, queue: ModelQueue, message: ModelMessage, now: float) -> None:
        crashed = message.liveness is not None and message.note != "prefetched"
        self._lose_holder(queue, message, "lease_expired", now, crashed=crashed)

    def _lose_holder(
        self,
        queue: ModelQueue,
        message: ModelMessage,
        how: str,
        now: float,
        *,
        crashed: bool,
        error: dict[str, Any] | None = None,
    ) -> None:
        """Back to waiting, or to the dead letters after one crash too many."""
        if crashed and 0 < queue.settings.crash_limit <= message.crashes + 1:
            message.crashes += 1
            self._bury(message, {"type": "CrashLimitExceeded"}, now)
        elif message.is_over(now):
            self._expire(queue, message, now)
        else:
            message.crashes += crashed
            if error is not None:
                message.last_error, message.failed_at = error, now
            kept = message.note == "prefetched" and not crashed and error is None
            self._end_lease(message, how, now)
            self._wait(queue, message, message.available_at if kept else now, now)

    def _tidy(self, queue: ModelQueue, now: float) -> None:
        """Expire, promote what is due, and let the next of each key come forward."""
        unread = sorted(queue.unread, key=lambda message: message.expires_at or 0.0)
        for message in [*queue.in_state(*WAITING), *unread]:
            if message.is_over(now):
                self._expire(queue, message, now)
        for message in queue.in_state("delayed"):
            if message.available_at <= now:
                message.state = "ready"
        for message in queue.in_state("held"):
            if not queue.is_held(message):
                self._wait(queue, message, max(message.available_at, now), now)

    def _expire(self, queue: ModelQueue, message: ModelMessage, now: float) -> None:
        self._make_row(queue, message)
        if queue.settings.on_expiry == "dead-letter":
            self._bury(message, {"type": "MessageExpired"}, now)
        else:
            queue.remove(message)

    # --- counting -----------------------------------------------------------------------------
    def waiting(self, name: str) -> int:
        queue = self.queues.get(name)
        return queue.waiting() if queue else 0

    def peek(self, name: str, limit: int, *, now: float) -> list[ModelMessage]:
        self.sweep(now)
        queue = self.queues.get(name)
        ready = queue.deliverable() if queue else []
        return [message.picture() for message in ready if not message.is_over(now)][:limit]

    def stats(self, name: str, *, now: float) -> QueueStats:
        self.sweep(now)
        queue = self.queues.get(name)
        if queue is None:
            return QueueStats()
        ready = queue.deliverable()
        leased = queue.in_state("inflight")
        by_worker: dict[str, int] = {}
        for message in leased:
            if message.leased_by is not None:
                by_worker[message.leased_by] = by_worker.get(message.leased_by, 0) + 1
        ages = [now - message.leased_at for message in leased]
        return QueueStats(
            ready=len(ready),
            delayed=len(queue.in_state("delayed", "held")),
            inflight=len(leased),
            dead=len(queue.in_state("dead")),
            total=len(queue.messages) + len(queue.unread),
            by_worker_id=by_worker,
            leases_by_worker_id=dict(queue.leases_by_worker),
            last_seen_by_worker_id=dict(queue.last_seen),
            oldest_ready_age_seconds=max(
                (now - m.available_at for m in ready if not m.is_over(now)), default=None
            ),
            oldest_inflight_age_seconds=max(ages, default=None),
            average_inflight_age_seconds=sum(ages) / len(ages) if ages else None,
            held=len(queue.in_state("held")),
        )

    def next_due(self, names: Iterable[str]) -> float | None:
        """When the next delayed message or lease is due; held ones wait for something else."""
        due: list[float] = []
        for queue in [self.queues[name] for name in names if name in self.queues]:
            due += [message.available_at for message in queue.in_state("delayed")]
            due += [m.leased_until for m in queue.in_state("inflight") if m.leased_until]
        return min(due, default=None)

    def record_worker_heartbeat(self, name: str, worker: str, *, now: float) -> None:
        self.sweep(now)
        self._use(name).last_seen[worker] = now

    # --- dead letters -------------------------------------------------------------------------
    def dead_letters(self, name: str, *, limit: int | None = None) -> list[ModelMessage]:
        queue = self.queues.get(name)
        dead = queue.in_state("dead") if queue else []
        dead.sort(key=lambda message: (message.died_at, message.made))
        return [message.picture() for message in dead[:limit]]

    def requeue_dead_many(
        self, name: str, ids: Iterable[Id], *, delay: float = 0.0, now: float
    ) -> list[bool]:
        self.sweep(now)
        return [self._requeue(name, id, delay, now) for id in ids]

    def _requeue(self, name: str, id: Id, delay: float, now: float) -> bool:
        message = self.read(name, id)
        if message is None or message.state != "dead":
            return False
        message.failures = message.crashes = 0
        message.expires_at = None
        message.turn = self._next()
        message.remember("requeued", now)
        self._wait(self.queues[name], message, now + delay, now)
        return True

    def old_dead_letters(self, name: str, *, older_than: float, now: float) -> list[ModelMessage]:
        return [m for m in self.dead_letters(name) if m.died_at <= now - older_than]

    def prune_dead_letters(self, name: str, *, older_than: float, now: float) -> int:
        self.sweep(now)
        old = self.old_dead_letters(name, older_than=older_than, now=now)
        for message in old:
            self.queues[name].remove(message)
        return len(old)

    def purge(self, name: str, *, now: float) -> int:
        self.sweep(now)
        queue = self.queues.get(name)
        if queue is None:
            return 0
        count = len(queue.messages) + len(queue.unread)
        for everything in (
            queue.messages, queue.unread, queue.keys, queue.requests, queue.leases_by_worker,
            queue.last_seen,
        ):  # fmt: skip
            everything.clear()
        return count

    # --- records ------------------------------------------------------------------------------
    def load_record(self, kind: str, key: str, *, now: float) -> Record | None:
        record = self.records.get((kind, key))
        return record if record is not None and not _is_over(record, now) else None

    def change_records(self, changes: Sequence[RecordChange], *, now: float) -> list[int]:
        self.sweep(now)
        return self._change_records(changes, now)

    def _change_records(self, changes: Sequence[RecordChange], now: float) -> list[int]:
        if self._conflicts(changes, now):
            raise RecordConflict("a record has another version")
        return [self._change_record(change, now) for change in changes]

    def _conflicts(self, changes: Sequence[RecordChange], now: float) -> bool:
        return any(
            change.expect is not None
            and change.expect != self._version(change.kind, change.key, now)
            for change in changes
        )

    def _change_record(self, change: RecordChange, now: float) -> int:
        place = (change.kind, change.key)
        if change.value is None:
            self.records.pop(place, None)
            return 0
        version = self._version(*place, now) + 1
        until = None if change.ttl is None else now + change.ttl
        self.records[place] = Record(*place, change.value, version, until)
        return version

    def _version(self, kind: str, key: str, now: float) -> int:
        record = self.load_record(kind, key, now=now)
        return record.version if record else 0

    def scan_records(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, now: float
    ) -> list[Record]:
        found = [
            record
            for (of_kind, key), record in sorted(self.records.items())
            if of_kind == kind and key.startswith(prefix) and key > after
            if not _is_over(record, now)
        ]
        return found[:limit]

    def prune_records(self, kind: str, *, now: float) -> int:
        """How many have ended since the last sweep; sweeping forgets the rest."""
        over = [r for r in self.records.values() if r.kind == kind and _is_over(r, now)]
        for record in over:
            del self.records[record.kind, record.key]
        return len(over)

    def _forget_records(self, now: float) -> None:
        self.records = {
            place: record for place, record in self.records.items() if not _is_over(record, now)
        }

    # --- keeping ------------------------------------------------------------------------------
    def _use(self, name: str) -> ModelQueue:
        if name not in self.queues:
            self.queues[name] = ModelQueue(name, DEFAULT_SETTINGS)
        return self.queues[name]

    def _picture(self, names: Iterable[str]) -> Picture:
        """Everything as it is now, for a batch that may be refused half-way.

        Only queues that the batch can reach are copied; the others stay as they are.
        """
        reached: set[str] = set()
        todo = [name for name in names if name in self.queues]
        while todo:
            queue = self.queues[todo.pop()]
            reached.add(queue.name)
            after = [*self._overflow_chain(queue), *self._subscribing(queue)]
            todo += [other.name for other in after if other.name not in reached]
        queues = {
            name: queue.picture() if name in reached else queue
            for name, queue in self.queues.items()
        }
        return queues, dict(self.records)

    def _back_to(self, picture: Picture) -> None:
        self.queues, self.records = picture


def _own_key(put: Put, queue: str) -> str | None:
    """A subscriber's dedupe key."""
    return None if put.dedupe_key is None else f"{put.dedupe_key}:{queue.rpartition('.')[2]}"


def _is_over(record: Record, now: float) -> bool:
    return record.expires_at is not None and record.expires_at <= now
