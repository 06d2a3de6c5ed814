"""A small, slow store in plain Python that says what every store must answer.

It is written to be read, not to be used: dicts and lists, everything is looked at in every call,
and whatever is due is done at once. ``random_operations.py`` runs it beside a real store and
compares the answers.

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
from localqueue.outcome import Ack, DeadLetter, Release, Settlement
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
    pos: float
    turn: Id
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

    @property
    def order(self) -> tuple[int, float, Id]:
        return (-self.priority, self.pos, self.id)

    @property
    def died_at(self) -> float:
        return self.created_at if self.failed_at is None else self.failed_at

    def public(self) -> ModelMessage:
        """As it is now: later changes of the message do not change what was answered."""
        picture = object.__new__(ModelMessage)
        picture.__dict__.update(self.__dict__)
        return picture

    def remember(self, what: str, at: float) -> None:
        self.history = (*self.history, (what, at, self.attempts))


class ModelAnswer(NamedTuple):
    message: ModelMessage
    fate: Fate
    version: int
    delay: float = 0.0


class Taken(NamedTuple):
    """Who has a dedupe key or request id, and until when it outlives its message."""

    holder: ModelMessage
    fingerprint: int
    until: float


@dataclass
class ModelQueue:
    name: str
    settings: QueueSettings
    version: int = 1
    messages: dict[Id, ModelMessage] = field(default_factory=dict)
    taken: dict[tuple[str, str], Taken] = field(default_factory=dict)
    leases_by_worker: dict[str, int] = field(default_factory=dict)
    last_seen: dict[str, float] = field(default_factory=dict)
    subscribers: list[str] = field(default_factory=list)
    kept: list[ModelMessage] = field(default_factory=list)
    """Of a topic that keeps payloads: everything published, for subscribers that come later."""
    unread: list[ModelMessage] = field(default_factory=list)
    """Of a subscriber: the publications that its cursor has not reached."""

    def picture(self) -> ModelQueue:
        return replace(
            self,
            messages={id: message.public() for id, message in self.messages.items()},
            taken=dict(self.taken),
            leases_by_worker=dict(self.leases_by_worker),
            last_seen=dict(self.last_seen),
            subscribers=list(self.subscribers),
            kept=list(self.kept),
            unread=[message.public() for message in self.unread],
        )

    def in_state(self, *states: str) -> list[ModelMessage]:
        return [message for message in self.messages.values() if message.state in states]

    def deliverable(self) -> list[ModelMessage]:
        """Everything that a lease would find, in its order."""
        return sorted([*self.in_state("ready"), *self.unread], key=lambda message: message.order)

    def waiting(self) -> int:
        return len(self.in_state(*WAITING)) + len(self.unread)


Picture = tuple[dict[str, ModelQueue], dict[tuple[str, str], Record]]


class ReferenceModel:
    """The contract of ``QueueStore``, told a second time."""

    def __init__(self) -> None:
        self.queues: dict[str, ModelQueue] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self.operation = 0
        self._number = 0
        self._swept_at = float("-inf")

    def begin(self, operation: int) -> None:
        """Everything made from here on is named after this operation."""
        self.operation, self._number = operation, 0

    # --- queues -------------------------------------------------------------------------------
    def configure(
        self, name: str, changes: Mapping[str, Any], *, now: float
    ) -> tuple[QueueSettings, int]:
        self.sweep(now)
        check_queue_name(name)
        settings = self._settings(name).changed(changes)
        queue = self._make(name)
        if settings != queue.settings:
            queue.settings = settings
            queue.version += 1
        return queue.settings, queue.version

    def settings(self, name: str) -> tuple[QueueSettings, int] | None:
        queue = self.queues.get(name)
        return (queue.settings, queue.version) if queue else None

    def find(self, name: str, id: Id) -> ModelMessage | None:
        queue = self.queues.get(name)
        return queue.messages.get(id) if queue else None

    # --- putting ------------------------------------------------------------------------------
    def enqueue_many(self, puts: Sequence[Put], *, now: float) -> list[ModelAnswer]:
        self.sweep(now)
        before = self._picture()
        try:
            return [self._put(put, now, bounded=True) for put in puts]
        except Exception:
            self._back_to(before)
            raise

    def _put(self, put: Put, now: float, *, bounded: bool) -> ModelAnswer:
        check_queue_name(put.queue)
        queue = self._make(put.queue)
        mode = queue.settings.fanout
        if mode is None:
            return self._put_here(queue, put, now, bounded=bounded)
        self._check_ordering(queue, put)
        if not queue.subscribers:
            raise InvalidMessage("publish-subscribe routing requires configured subscribers")
        special = put.delay > 0 or put.priority > 0 or put.ordering_key is not None
        if mode == "cursor" and special:
            raise InvalidMessage("cursor fan-out delivers in publication order")
        if mode == "copy" or special:
            return self._publish_copies(queue, put, now, bounded=bounded)
        return self._publish_once(queue, put, now)

    def _publish_copies(
        self, topic: ModelQueue, put: Put, now: float, *, bounded: bool
    ) -> ModelAnswer:
        answers = []
        for subscriber in topic.subscribers:
            queue = self._make(f"{topic.name}.{subscriber}")
            key = f"{put.dedupe_key}:{subscriber}" if put.dedupe_key is not None else None
            mine = replace(put, queue=queue.name, dedupe_key=key)
            answers.append(self._put_here(queue, mine, now, bounded=bounded))
        if topic.settings.journal_payloads and any(a.fate is Fate.STORED for a in answers):
            topic.kept.append(self._message(topic, put, now))
        for fate in (Fate.STORED, Fate.DUPLICATE, Fate.DROPPED):
            for answer in answers:
                if answer.fate is fate:
                    return answer
        raise AssertionError("a topic has at least one subscriber")

    def _publish_once(self, topic: ModelQueue, put: Put, now: float) -> ModelAnswer:
        found = self._duplicate(topic, put, now)
        if found is not None:
            return found
        publication = self._message(topic, put, now)
        if topic.settings.journal_payloads:
            topic.kept.append(publication)
        for subscriber in topic.subscribers:
            queue = self._make(f"{topic.name}.{subscriber}")
            queue.unread.append(self._reading(publication, queue))
        self._take_keys(topic, put, publication, now)
        return ModelAnswer(publication.public(), Fate.STORED, topic.version)

    def _reading(self, publication: ModelMessage, queue: ModelQueue) -> ModelMessage:
        mine = publication.public()
        mine.queue, mine.dedupe_key = queue.name, publication.dedupe_key
        return mine

    def _put_here(self, queue: ModelQueue, put: Put, now: float, *, bounded: bool) -> ModelAnswer:
        self._check_ordering(queue, put)
        found = self._duplicate(queue, put, now)
        if found is not None:
            return found
        target, fate, state = queue, Fate.STORED, ""
        if bounded:
            target, fate, state = self._find_room(queue, now)
        delay = self._throttle(queue) if bounded else 0.0
        message = self._message(target, put, now)
        if fate is Fate.DROPPED:
            return ModelAnswer(message, fate, queue.version)
        if state == "dead":
            message.state = "dead"
            message.last_error, message.failed_at = {"type": "QueueFull"}, now
        target.messages[message.id] = message
        self._take_keys(queue, put, message, now)
        self._tidy(now)
        return ModelAnswer(message.public(), fate, queue.version, delay)

    def _find_room(self, queue: ModelQueue, now: float) -> tuple[ModelQueue, Fate, str]:
        for _ in range(LONGEST_OVERFLOW + 1):
            settings = queue.settings
            if not 0 < settings.maxsize <= queue.waiting() or settings.overflow == "throttle":
                return queue, Fate.STORED, ""
            if settings.overflow == "drop-newest":
                return queue, Fate.DROPPED, ""
            if settings.overflow == "drop-oldest":
                ready = queue.in_state("ready")
                if not ready:
                    raise QueueIsFull(queue.name, settings.overflow)
                lowest = min(message.priority for message in ready)
                self._remove(
                    min(
                        (message for message in ready if message.priority == lowest),
                        key=lambda message: message.order,
                    )
                )
                self._tidy(now)
                return queue, Fate.STORED, ""
            if settings.overflow != "overflow":
                raise QueueIsFull(queue.name, settings.overflow)
            if settings.overflow_to is None:
                return queue, Fate.STORED, "dead"
            queue = self._make(settings.overflow_to)
        raise QueueIsFull(queue.name, "overflow")

    def _throttle(self, queue: ModelQueue) -> float:
        settings, waiting = queue.settings, queue.waiting()
        if settings.overflow != "throttle" or not 0 < settings.maxsize <= waiting:
            return 0.0
        longest = settings.throttle_delay
        return min(longest, longest * (waiting - settings.maxsize + 1) / settings.maxsize)

    def _check_ordering(self, queue: ModelQueue, put: Put) -> None:
        if put.priority > 0 and queue.settings.ordering != "priority":
            raise InvalidMessage("priority needs priority ordering")
        if put.ordering_key is not None and queue.settings.ordering != "per-key":
            raise InvalidMessage("an ordering key needs ordering per key")

    def _message(self, queue: ModelQueue, put: Put, now: float) -> ModelMessage:
        ttl = queue.settings.ttl if put.ttl is None else put.ttl
        due = now + put.delay
        self._number += 1
        id = (self.operation, self._number)
        message = ModelMessage(
            id=id,
            queue=queue.name,
            body=put.body,
            codec=put.codec,
            headers=put.headers,
            created_at=now,
            available_at=due,
            pos=due,
            turn=id,
            state="delayed" if put.delay > 0 else "ready",
            priority=put.priority,
            ordering_key=put.ordering_key,
            dedupe_key=put.dedupe_key,
            expires_at=None if ttl is None else now + ttl,
        )
        if self._others_of_its_key(queue, message):
            message.state = "held"
        return message

    def _duplicate(self, queue: ModelQueue, put: Put, now: float) -> ModelAnswer | None:
        for kind, key in _keys(put):
            taken = queue.taken.get((kind, key))
            if taken is None:
                continue
            living = self._is_there(taken.holder)
            if not living and now >= taken.until:
                continue
            if kind == "dedupe" and put.conflict_is_error and taken.fingerprint != put.fingerprint:
                raise DuplicateConflict(f"the key {key!r} belongs to another value")
            message = taken.holder.public()
            if not living:
                message = self._message(queue, put, now)
                message.id, message.state = taken.holder.id, "ready"
            return ModelAnswer(message, Fate.DUPLICATE, queue.version)
        return None

    def _take_keys(self, queue: ModelQueue, put: Put, message: ModelMessage, now: float) -> None:
        for kind, key in _keys(put):
            window = put.dedupe_window if kind == "dedupe" else REQUEST_ID_WINDOW
            queue.taken[kind, key] = Taken(message, put.fingerprint, now + window)

    def _is_there(self, message: ModelMessage) -> bool:
        queue = self.queues[message.queue]
        return queue.messages.get(message.id) is message

    # --- leasing and settling -----------------------------------------------------------------
    def lease(self, request: LeaseRequest, *, now: float) -> list[ModelMessage]:
        self.sweep(now)
        taken: list[ModelMessage] = []
        for name in request.queues:
            queue = self.queues.get(name)
            if queue is None or queue.settings.paused:
                continue
            for message in queue.deliverable()[: request.limit - len(taken)]:
                taken.append(self._lease_one(queue, message, request, now))
        self._tidy(now)
        return taken

    def _lease_one(
        self, queue: ModelQueue, message: ModelMessage, request: LeaseRequest, now: float
    ) -> ModelMessage:
        if message.id not in queue.messages:
            queue.unread.remove(message)
            queue.messages[message.id] = message
        self._number += 1
        message.state = "inflight"
        message.attempts += 1
        message.token = (self.operation, self._number)
        message.leased_at, message.leased_until = now, now + request.timeout
        message.leased_by, message.liveness = request.worker, request.liveness
        message.remember("leased", now)
        if request.worker is not None:
            count = queue.leases_by_worker.get(request.worker, 0)
            queue.leases_by_worker[request.worker] = count + 1
        if request.remove:
            self._remove(message)
        return message.public()

    def ack_many(
        self, receipts: Iterable[ModelReceipt], *, now: float, late: bool = False
    ) -> list[bool]:
        return [self._settle_one(receipt, Ack(), now, late=late) for receipt in receipts]

    def release_many(
        self,
        receipts: Iterable[ModelReceipt],
        *,
        delay: float = 0.0,
        error: Mapping[str, Any] | None = None,
        now: float,
        late: bool = False,
    ) -> list[bool]:
        release = Release(delay, dict(error) if error is not None else None)
        return [self._settle_one(receipt, release, now, late=late) for receipt in receipts]

    def dead_letter_many(
        self,
        receipts: Iterable[ModelReceipt],
        *,
        error: Mapping[str, Any] | None = None,
        now: float,
        late: bool = False,
    ) -> list[bool]:
        dead = DeadLetter(dict(error) if error is not None else None)
        return [self._settle_one(receipt, dead, now, late=late) for receipt in receipts]

    def extend(
        self,
        receipts: Iterable[ModelReceipt],
        *,
        timeout: float,
        note: str | None = None,
        now: float,
        late: bool = False,
    ) -> list[LeaseAnswer]:
        answers = []
        if not late:
            self.sweep(now)
        for receipt in receipts:
            message = self._held_by(receipt)
            if message is None or message.state != "inflight":
                answers.append(LeaseAnswer.LOST)
                continue
            message.leased_until = now + timeout
            message.note = note
            asked = message.cancel_asked
            answers.append(LeaseAnswer.CANCEL_ASKED if asked else LeaseAnswer.HELD)
        self.sweep(now)
        return answers

    def settle(
        self,
        receipt: ModelReceipt,
        settlement: Settlement,
        records: Sequence[RecordChange] = (),
        puts: Sequence[Put] = (),
        *,
        now: float,
        late: bool = False,
    ) -> Settled:
        if not late:
            self.sweep(now)
        before = self._picture()
        if not self._settle_one(receipt, settlement, now, late=late):
            return Settled.STALE
        try:
            self._change_records(records, now)
            for put in puts:
                self._put(put, now, bounded=False)
        except RecordConflict:
            self._back_to(before)
            return Settled.CONFLICT
        except Exception:
            self._back_to(before)
            raise
        return Settled.DONE

    def _settle_one(
        self, receipt: ModelReceipt, settlement: Settlement, now: float, *, late: bool = False
    ) -> bool:
        """``late``: the lease is over, but nobody has looked since, so it still holds."""
        if not late:
            self.sweep(now)
        message = self._held_by(receipt)
        if message is None:
            return False
        match settlement:
            case Ack():
                self._remove(message)
            case Release(delay, error):
                if message.state == "dead":
                    return False
                self._release(message, delay, error, now)
            case DeadLetter(error):
                self._bury(message, error, now)
        self.sweep(now)
        return True

    def _held_by(self, receipt: ModelReceipt) -> ModelMessage | None:
        message = self.find(receipt.queue, receipt.id)
        if message is None or receipt.token is None:
            return message
        if receipt.token == 0:
            return message if message.state != "inflight" else None
        return message if message.token == receipt.token else None

    def _release(
        self, message: ModelMessage, delay: float, error: dict[str, Any] | None, now: float
    ) -> None:
        if error is not None:
            message.failures += 1
            message.last_error, message.failed_at = error, now
        self._end_lease(message)
        message.remember("released", now)
        message.available_at = message.pos = now + delay
        if message.state != "held":
            message.state = "delayed" if delay > 0 else "ready"

    def _bury(self, message: ModelMessage, error: dict[str, Any] | None, now: float) -> None:
        if error is not None:
            message.last_error, message.failed_at = error, now
        self._end_lease(message)
        message.remember("dead_lettered", now)
        message.state = "dead"

    def _end_lease(self, message: ModelMessage) -> None:
        message.token = message.leased_until = message.leased_by = None
        message.liveness = message.note = None
        message.cancel_asked = False

    def _remove(self, message: ModelMessage) -> None:
        del self.queues[message.queue].messages[message.id]

    def cancel(self, name: str, id: Id, *, now: float) -> Cancelled:
        self.sweep(now)
        message = self.find(name, id)
        if message is None or message.state == "dead":
            return Cancelled.UNKNOWN
        if message.state == "inflight":
            message.cancel_asked = True
            return Cancelled.ASKED
        self._remove(message)
        self._tidy(now)
        return Cancelled.REMOVED

    # --- what time does -----------------------------------------------------------------------
    def sweep(self, now: float) -> None:
        """Do everything that is due: leases, delays and expiries."""
        if now == self._swept_at:
            return  # each verb leaves its queues tidy, so only time can make something due
        self._swept_at = now
        for queue in self.queues.values():
            self._sweep_queue(queue, now)
        self.prune_records(None, now=now)

    def _sweep_queue(self, queue: ModelQueue, now: float) -> None:
        for message in queue.in_state("inflight"):
            if message.leased_until is not None and message.leased_until <= now:
                self._expire_lease(queue, message, now)
        self._tidy(queue, now)

    def new_boot(self, *, now: float) -> None:
        """The host started again: nobody can hold a lease, and nobody is blamed for that."""
        for queue in self.queues.values():
            for message in queue.in_state("inflight"):
                message.liveness = None
                self._expire_lease(queue, message, now)
        self.sweep(now)

    def _expire_lease(self, queue: ModelQueue, message: ModelMessage, now: float) -> None:
        crashed = message.liveness is not None and message.note != "prefetched"
        self._end_lease(message)
        message.remember("lease_expired", now)
        message.state = "ready"
        message.available_at = message.pos = now
        limit = queue.settings.crash_limit
        if crashed:
            message.crashes += 1
            if 0 < limit <= message.crashes:
                self._bury(message, {"type": "CrashLimitExceeded"}, now)

    def _tidy(self, now: float) -> None:
        """Expire, promote what is due, and let the next of each key come forward."""
        changed = True
        while changed:
            changed = any([self._tidy_queue(queue, now) for queue in self.queues.values()])

    def _tidy_queue(self, queue: ModelQueue, now: float) -> bool:
        changed = False
        for message in [*queue.in_state(*WAITING), *queue.unread]:
            if message.expires_at is not None and message.expires_at <= now:
                self._expire(queue, message, now)
                changed = True
        for message in queue.in_state("delayed"):
            if message.available_at <= now:
                message.state = "ready"
        for message in queue.in_state("held"):
            if not self._others_of_its_key(queue, message):
                message.state = "ready"
                message.pos = now
                if message.available_at > now:
                    message.state, message.pos = "delayed", message.available_at
                changed = True
        return changed

    def _expire(self, queue: ModelQueue, message: ModelMessage, now: float) -> None:
        if message.id not in queue.messages:
            queue.unread.remove(message)
            queue.messages[message.id] = message
        if queue.settings.on_expiry == "dead-letter":
            self._bury(message, {"type": "MessageExpired"}, now)
        else:
            self._remove(message)

    def _others_of_its_key(self, queue: ModelQueue, message: ModelMessage) -> bool:
        """Whether someone is before it in its key. Dead messages hold nobody."""
        return message.ordering_key is not None and any(
            other.ordering_key == message.ordering_key
            and other.state != "dead"
            and other.turn < message.turn
            for other in queue.messages.values()
        )

    # --- counting -----------------------------------------------------------------------------
    def qsize(self, name: str, *, now: float) -> int:
        self.sweep(now)
        queue = self.queues.get(name)
        return len(queue.deliverable()) if queue else 0

    def waiting(self, name: str) -> int:
        queue = self.queues.get(name)
        return queue.waiting() if queue else 0

    def peek(self, name: str, limit: int, *, now: float) -> list[ModelMessage]:
        self.sweep(now)
        queue = self.queues.get(name)
        return [message.public() for message in queue.deliverable()[:limit]] if queue else []

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
            oldest_ready_age_seconds=max((now - m.pos for m in ready), default=None),
            oldest_inflight_age_seconds=max(ages, default=None),
            average_inflight_age_seconds=sum(ages) / len(ages) if ages else None,
            held=len(queue.in_state("held")),
        )

    def next_due(self, names: Sequence[str]) -> float | None:
        due = []
        for queue in [self.queues[name] for name in names if name in self.queues]:
            due += [message.available_at for message in queue.in_state("delayed")]
            due += [m.leased_until for m in queue.in_state("inflight") if m.leased_until]
        return min(due, default=None)

    def record_worker_heartbeat(self, name: str, worker: str, *, now: float) -> None:
        self.sweep(now)
        self._make(name).last_seen[worker] = now

    # --- dead letters -------------------------------------------------------------------------
    def dead_letters(self, name: str, *, limit: int | None = None) -> list[ModelMessage]:
        queue = self.queues.get(name)
        dead = queue.in_state("dead") if queue else []
        dead.sort(key=lambda message: (message.died_at, message.id))
        return [message.public() for message in dead[:limit]]

    def requeue_dead_many(
        self, name: str, ids: Iterable[Id], *, delay: float = 0.0, now: float
    ) -> list[bool]:
        self.sweep(now)
        return [self._requeue(name, id, delay, now) for id in ids]

    def _requeue(self, name: str, id: Id, delay: float, now: float) -> bool:
        message = self.find(name, id)
        if message is None or message.state != "dead":
            return False
        message.failures = message.crashes = 0
        message.expires_at = None
        message.available_at = message.pos = now + delay
        self._number += 1
        message.turn = (self.operation, self._number)
        message.state = "delayed" if delay > 0 else "ready"
        if self._others_of_its_key(self.queues[name], message):
            message.state = "held"
        message.remember("requeued", now)
        return True

    def old_dead_letters(self, name: str, *, older_than: float, now: float) -> list[ModelMessage]:
        return [m for m in self.dead_letters(name) if m.died_at <= now - older_than]

    def prune_dead_letters(self, name: str, *, older_than: float, now: float) -> int:
        self.sweep(now)
        old = self.old_dead_letters(name, older_than=older_than, now=now)
        for message in old:
            self._remove(message)
        return len(old)

    def purge(self, name: str, *, now: float) -> int:
        self.sweep(now)
        queue = self.queues.get(name)
        if queue is None:
            return 0
        count = len(queue.messages) + len(queue.unread)
        queue.messages.clear()
        queue.unread.clear()
        queue.taken.clear()
        queue.leases_by_worker.clear()
        queue.last_seen.clear()
        return count

    # --- topics -------------------------------------------------------------------------------
    def subscribe(
        self, topic: str, subscriber: str, *, after: Id | None = None, now: float
    ) -> bool:
        """``after``: hand out what was published after this id too; None is from now on."""
        self.sweep(now)
        queue = self._make(topic)
        if subscriber in queue.subscribers:
            return False
        if after is not None and not queue.settings.journal_payloads:
            raise ConfigurationError("an earlier start needs a journal that keeps payloads")
        queue.subscribers.append(subscriber)
        mine = self._make(f"{topic}.{subscriber}")
        settings = queue.settings.changed({"fanout": None})
        if settings != mine.settings:
            mine.settings = settings
            mine.version += 1
        mine.unread = [
            self._reading(publication, mine)
            for publication in queue.kept
            if after is not None and publication.id > after
        ]
        self.sweep(now)
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

    # --- records ------------------------------------------------------------------------------
    def load_record(self, kind: str, key: str, *, now: float) -> Record | None:
        record = self.records.get((kind, key))
        return record if record is not None and not _is_over(record, now) else None

    def change_records(self, changes: Sequence[RecordChange], *, now: float) -> list[int]:
        before = dict(self.records)
        try:
            return self._change_records(changes, now)
        except RecordConflict:
            self.records = before
            raise

    def _change_records(self, changes: Sequence[RecordChange], now: float) -> list[int]:
        versions = []
        for change in changes:
            place = (change.kind, change.key)
            current = self.load_record(*place, now=now)
            version = current.version if current else 0
            if change.expect is not None and change.expect != version:
                raise RecordConflict(f"{place} has version {version}")
            if change.value is None:
                self.records.pop(place, None)
                versions.append(0)
                continue
            until = None if change.ttl is None else now + change.ttl
            self.records[place] = Record(*place, change.value, version + 1, until)
            versions.append(version + 1)
        return versions

    def scan_records(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, now: float
    ) -> list[Record]:
        found = [
            record
            for (record_kind, key), record in sorted(self.records.items())
            if record_kind == kind and key.startswith(prefix) and key > after
            if not _is_over(record, now)
        ]
        return found[:limit]

    def prune_records(self, kind: str, *, now: float) -> int:
        over = [
            place
            for place, record in self.records.items()
            if record.kind == kind and _is_over(record, now)
        ]
        for place in over:
            del self.records[place]
        return len(over)

    # --- keeping ------------------------------------------------------------------------------
    def _make(self, name: str) -> ModelQueue:
        if name not in self.queues:
            self.queues[name] = ModelQueue(name, DEFAULT_SETTINGS)
        return self.queues[name]

    def _settings(self, name: str) -> QueueSettings:
        queue = self.queues.get(name)
        return queue.settings if queue else DEFAULT_SETTINGS

    def _picture(self) -> Picture:
        """Everything as it is now, for a batch that may be refused half-way."""
        return {name: queue.picture() for name, queue in self.queues.items()}, dict(self.records)

    def _back_to(self, picture: Picture) -> None:
        self.queues, self.records = picture


def _keys(put: Put) -> list[tuple[str, str]]:
    keys = [("dedupe", put.dedupe_key), ("request", put.request_id)]
    return [(kind, key) for kind, key in keys if key is not None]


def _is_over(record: Record, now: float) -> bool:
    return record.expires_at is not None and record.expires_at <= now
