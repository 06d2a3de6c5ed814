"""A custom store that has only the simple verbs, spoken to as a whole one.

``SimpleStore`` is everything that a custom object must have. ``MinimalStore`` makes the store
contract of it: batches are looped, values become bytes at this border, and what the object cannot
do raises UnsupportedByStore. What the wrapper adds by itself is worth less than in a store of its
own, and a caller may rely on no more than this:

- A verb is several calls of the object. Threads of this process do not come in between, other
  processes may; a crash may leave the first part done.
- A receipt's token is the message's number of attempts, compared with ``get`` before the object is
  told to act.
- Settings, pauses and the memory of deduplication keys are this object's own: another process,
  or the next start, does not see them.
- Time is wall time: setting the clock moves leases and delays with it.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from localqueue.checks import check_queue_name
from localqueue.clock import Clock, Now, read_now
from localqueue.codec import JSON_CODEC
from localqueue.errors import DuplicateConflict, InvalidMessage, StoreClosed, UnsupportedByStore
from localqueue.message import NEVER_LEASED, QueueStats, Receipt, State
from localqueue.outcome import Ack, Cancel, Crashed, DeadLetter, Release, Settlement, describe_error
from localqueue.stores.protocol import (
    LARGEST_BATCH,
    LARGEST_BATCH_BYTES,
    Cancelled,
    Enqueued,
    Fate,
    JournalEvent,
    JournalReader,
    LeaseAnswer,
    LeaseRequest,
    Put,
    QueueIsFull,
    Settle,
    Settled,
    StoreCapabilities,
    StoredMessage,
    Waiter,
)
from localqueue.stores.records import Record, RecordChange
from localqueue.stores.settings import DEFAULT_SETTINGS, QueueSettings

POLL_INTERVAL = 0.05
LONGEST_OVERFLOW = 8
_SAME_MOMENT = 0.001


class SimpleStore(Protocol):
    """The simple verbs. Messages are objects with the fields of QueueMessage; times are wall time.

    ``release`` and ``dead_letter`` without an error leave the old one standing. A dedupe key that
    is taken makes ``enqueue`` return the message that has it, unchanged.
    """

    def enqueue(
        self,
        queue: str,
        value: Any,
        /,
        *,
        available_at: float,
        dedupe_key: str | None = None,
        priority: int = 0,
    ) -> Any: ...

    def dequeue(
        self, queue: str, /, *, lease_timeout: float, now: float, leased_by: str | None = None
    ) -> Any | None: ...

    def get(self, queue: str, message_id: str, /) -> Any | None: ...

    def ack(self, queue: str, message_id: str, /) -> bool: ...

    def release(
        self,
        queue: str,
        message_id: str,
        /,
        *,
        available_at: float,
        last_error: dict[str, Any] | None = None,
        failed_at: float | None = None,
    ) -> bool: ...

    def dead_letter(
        self,
        queue: str,
        message_id: str,
        /,
        *,
        last_error: dict[str, Any] | None = None,
        failed_at: float | None = None,
    ) -> bool: ...

    def qsize(self, queue: str, /, *, now: float) -> int: ...

    def stats(self, queue: str, /, *, now: float) -> Any: ...

    def record_worker_heartbeat(self, queue: str, worker_id: str, /, *, now: float) -> None: ...

    def dead_letters(self, queue: str, /, *, limit: int | None = None) -> Sequence[Any]: ...

    def requeue_dead(self, queue: str, message_id: str, /, *, available_at: float) -> bool: ...

    def prune_dead_letters(self, queue: str, /, *, older_than: float, now: float) -> int: ...

    def count_dead_letters_older_than(
        self, queue: str, /, *, older_than: float, now: float
    ) -> int: ...

    def empty(self, queue: str, /, *, now: float) -> bool: ...

    def purge(self, queue: str, /) -> int: ...


class MinimalStore:
    """The whole store contract over a SimpleStore, as far as that can go."""

    def __init__(self, custom: SimpleStore) -> None:
        self._wrapped = custom
        self._closed = False
        self._lock = threading.RLock()
        self._rows: dict[str, tuple[QueueSettings, int]] = {}
        self._keys: dict[tuple[str, str], str] = {}

    @property
    def capabilities(self) -> StoreCapabilities:
        """What the object declares as its ``capabilities``; nothing unless it does."""
        declared = getattr(self._wrapped, "capabilities", None)
        return declared if isinstance(declared, StoreCapabilities) else StoreCapabilities()

    @property
    def run_folder(self) -> None:
        """None: nobody knows where the object keeps its messages."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            close = getattr(self._wrapped, "close", None)
            if close is not None:
                close()

    def open_clock(self, clock: Clock) -> float:
        return clock.wall() - clock.steady()

    # --- queues -------------------------------------------------------------------------------
    def configure(
        self, queue: str, changes: Mapping[str, Any], *, now: Now, by: str = "worker"
    ) -> tuple[QueueSettings, int]:
        check_queue_name(queue)
        with self._lock:
            self._custom()
            settings, version = self._row(queue)
            wanted = settings.changed(changes)
            _refuse_settings_beyond_reach(wanted)
            if wanted != settings:
                self._rows[queue] = (wanted, version + 1)
            return self._rows[queue]

    def settings(self, queue: str) -> tuple[QueueSettings, int] | None:
        """The settings that this object was given, or None for a queue it was never told of."""
        self._custom()
        return self._rows.get(queue)

    def queues(self) -> list[str]:
        """The queues used through this object; a simple store cannot list the others."""
        self._custom()
        return sorted(self._rows)

    # --- messages -----------------------------------------------------------------------------
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> list[Enqueued]:
        """Store them one after the other, once all of them were found storable."""
        with self._lock:
            moment = self._moment(now)
            self._check(puts)
            self._refuse_what_does_not_fit(puts, moment)
            return [self._enqueue(put, moment) for put in puts]

    def enqueue_with_records(
        self, puts: Sequence[Put], changes: Sequence[RecordChange], *, now: Now
    ) -> list[Enqueued]:
        if changes:
            raise _lacks("keep records, so nothing can become durable together with a message")
        return self.enqueue_many(puts, now=now)

    def lease(self, request: LeaseRequest, *, now: Now) -> list[StoredMessage]:
        leased: list[StoredMessage] = []
        with self._lock:
            moment = self._moment(now)
            for queue in request.queues:
                while len(leased) < request.limit and not self._is_paused(queue):
                    message = self._custom().dequeue(
                        queue,
                        lease_timeout=request.timeout,
                        now=moment,
                        leased_by=request.worker,
                    )
                    if message is None:
                        break
                    leased += self._handed_out(queue, message, request.remove, moment)
        return leased

    def ack_many(self, receipts: Sequence[Receipt], *, now: Now) -> list[bool]:
        with self._lock:
            moment = self._moment(now)
            return [self._end(receipt, Ack(), moment) for receipt in receipts]

    def release_many(
        self,
        receipts: Sequence[Receipt],
        *,
        delay: float = 0.0,
        error: Mapping[str, Any] | None = None,
        now: Now,
    ) -> list[bool]:
        settlement = Release(delay, None if error is None else dict(error))
        with self._lock:
            moment = self._moment(now)
            return [self._end(receipt, settlement, moment) for receipt in receipts]

    def dead_letter_many(
        self, receipts: Sequence[Receipt], *, error: Mapping[str, Any] | None = None, now: Now
    ) -> list[bool]:
        settlement = DeadLetter(None if error is None else dict(error))
        with self._lock:
            moment = self._moment(now)
            return [self._end(receipt, settlement, moment) for receipt in receipts]

    def extend(
        self, receipts: Sequence[Receipt], *, timeout: float, note: str | None = None, now: Now
    ) -> list[LeaseAnswer]:
        raise _lacks("extend a lease; choose a lease timeout that is longer than any handler runs")

    def extend_of(self, liveness: str, *, timeout: float, now: Now) -> int:
        """0: a simple store does not know under which liveness name a lease was taken."""
        self._custom()
        return 0

    def end_leases_of(self, liveness: str, running: Collection[str], *, now: Now) -> int:
        self._custom()
        return 0

    def leased_under(
        self, liveness: str, queue: str, *, after: int = NEVER_LEASED, upto: int | None = None
    ) -> list[StoredMessage]:
        raise _lacks("tell under which liveness name a lease was taken")

    def settle(self, settle: Settle, *, now: Now) -> Settled:
        """End the lease; its follow-ups are stored first, so that a crash repeats them instead."""
        if settle.records:
            raise _lacks("keep records, so nothing can become durable together with a settlement")
        with self._lock:
            moment = self._moment(now)
            if self._held(settle.receipt) is None:
                return Settled.STALE
            self._check(settle.puts)
            for put in settle.puts:
                self._enqueue(put, moment, bounded=False)
            done = self._end(settle.receipt, settle.settlement, moment)
            return Settled.DONE if done else Settled.STALE

    def settle_and_lease(
        self, settles: Sequence[Settle], request: LeaseRequest | None, *, now: Now
    ) -> tuple[list[Settled], list[StoredMessage]]:
        with self._lock:
            moment = self._moment(now)
            settled = [self.settle(settle, now=moment) for settle in settles]
            return settled, [] if request is None else self.lease(request, now=moment)

    def cancel(self, queue: str, message_id: str, *, now: Now) -> Cancelled:
        with self._lock:
            self._moment(now)
            message = self._custom().get(queue, message_id)
            if message is None or message.state == State.DEAD:
                return Cancelled.UNKNOWN
            if message.state == State.INFLIGHT:
                raise _lacks("ask the holder of a lease to stop")
            removed = self._custom().ack(queue, message_id)
            return Cancelled.REMOVED if removed else Cancelled.UNKNOWN

    def read(self, queue: str, message_id: str) -> StoredMessage | None:
        message = self._custom().get(queue, message_id)
        return None if message is None else _stored(message)

    def peek(self, queue: str, limit: int, *, now: Now) -> list[StoredMessage]:
        raise _lacks("show messages without leasing them")

    # --- counting -----------------------------------------------------------------------------
    def qsize(self, queue: str, *, now: Now) -> int:
        return self._custom().qsize(queue, now=self._moment(now))

    def waiting(self, queue: str, *, now: Now) -> int:
        stats = self.stats(queue, now=now)
        return stats.ready + stats.delayed

    def stats(self, queue: str, *, now: Now) -> QueueStats:
        return _counted(self._custom().stats(queue, now=self._moment(now)))

    def next_due(self, queues: Sequence[str]) -> float | None:
        """None: a simple store cannot say, so its waiters look again and again."""
        self._custom()
        return None

    def record_worker_heartbeat(self, queue: str, worker_id: str, *, now: Now) -> None:
        self._custom().record_worker_heartbeat(queue, worker_id, now=self._moment(now))

    # --- dead letters -------------------------------------------------------------------------
    def dead_letters(self, queue: str, *, limit: int | None = None) -> list[StoredMessage]:
        return [_stored(message) for message in self._custom().dead_letters(queue, limit=limit)]

    def dead_letter_ids(self, queue: str, *, limit: int | None = None) -> list[str]:
        return [message.id for message in self._custom().dead_letters(queue, limit=limit)]

    def requeue_dead_many(
        self, queue: str, message_ids: Sequence[str], *, delay: float = 0.0, now: Now
    ) -> list[bool]:
        with self._lock:
            due = self._moment(now) + delay
            requeue = self._custom().requeue_dead
            return [bool(requeue(queue, id_, available_at=due)) for id_ in message_ids]

    def count_dead_letters_older_than(self, queue: str, *, older_than: float, now: Now) -> int:
        moment = self._moment(now)
        count = self._custom().count_dead_letters_older_than
        return count(queue, older_than=older_than, now=moment)

    def prune_dead_letters(self, queue: str, *, older_than: float, now: Now) -> int:
        moment = self._moment(now)
        return self._custom().prune_dead_letters(queue, older_than=older_than, now=moment)

    def purge(self, queue: str, *, now: Now) -> int:
        with self._lock:
            self._moment(now)
            for key in [key for key in self._keys if key[0] == queue]:
                del self._keys[key]
            return self._custom().purge(queue)

    # --- topics -------------------------------------------------------------------------------
    def subscribe(self, topic: str, subscriber: str, *, start: str = "now", now: Now) -> bool:
        raise _lacks("hand out to subscribers")

    def unsubscribe(self, topic: str, subscriber: str, *, now: Now) -> bool:
        raise _lacks("hand out to subscribers")

    def subscribers(self, topic: str) -> list[str]:
        self._custom()
        return []

    # --- records ------------------------------------------------------------------------------
    def load_record(self, kind: str, key: str, *, now: Now) -> Record | None:
        raise _lacks("keep records")

    def change_records(self, changes: Sequence[RecordChange], *, now: Now) -> list[int]:
        raise _lacks("keep records")

    def scan_records(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, now: Now
    ) -> list[Record]:
        raise _lacks("keep records")

    def prune_records(self, kind: str, *, now: Now) -> int:
        raise _lacks("keep records")

    # --- journal ------------------------------------------------------------------------------
    def journal(
        self, queues: Sequence[str] | None = None, *, after: str | None = None, limit: int = 1000
    ) -> list[JournalEvent]:
        raise _lacks("keep a journal")

    def journal_end(self) -> str:
        raise _lacks("keep a journal")

    def history(self, queue: str, message_id: str) -> list[JournalEvent]:
        raise _lacks("keep a journal")

    def register_reader(
        self,
        name: str,
        *,
        position: str | None = None,
        max_age: float = 30 * 86_400.0,
        missing_ok: bool = False,
        now: Now,
    ) -> JournalReader:
        raise _lacks("keep a journal")

    def commit_reader(self, name: str, position: str, *, now: Now) -> None:
        raise _lacks("keep a journal")

    def drop_reader(self, name: str) -> bool:
        raise _lacks("keep a journal")

    def readers(self) -> list[JournalReader]:
        raise _lacks("keep a journal")

    # --- waiting ------------------------------------------------------------------------------
    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        """A waiter that looks again every 50 ms: nobody tells it."""
        self._custom()
        return PollingWaiter()

    # --- how it is done -----------------------------------------------------------------------
    def _custom(self) -> SimpleStore:
        if self._closed:
            raise StoreClosed("the store was closed; make a new one")
        return self._wrapped

    def _moment(self, now: Now) -> float:
        self._custom()
        return read_now(now)

    def _row(self, queue: str) -> tuple[QueueSettings, int]:
        return self._rows.setdefault(queue, (DEFAULT_SETTINGS, 1))

    def _is_paused(self, queue: str) -> bool:
        return self._rows.get(queue, (DEFAULT_SETTINGS, 0))[0].paused

    def _check(self, puts: Sequence[Put]) -> None:
        if len(puts) > LARGEST_BATCH or sum(len(put.body) for put in puts) > LARGEST_BATCH_BYTES:
            raise InvalidMessage(
                f"a batch is limited to {LARGEST_BATCH:,} messages"
                f" and {LARGEST_BATCH_BYTES:,} bytes; nothing was stored"
            )
        for put in puts:
            check_queue_name(put.queue)
            _refuse_put_beyond_reach(put)
            if put.priority and self._row(put.queue)[0].ordering != "priority":
                raise InvalidMessage("priority requires PriorityOrdering")
            _refuse_conflict(put, self._holder_of_key(put))

    def _refuse_what_does_not_fit(self, puts: Sequence[Put], moment: float) -> None:
        arriving: Counter[str] = Counter()
        keys: set[tuple[str, str]] = set()
        for put in puts:
            if put.dedupe_key is None:
                arriving[put.queue] += 1
            elif (put.queue, put.dedupe_key) not in keys and self._holder_of_key(put) is None:
                keys.add((put.queue, put.dedupe_key))
                arriving[put.queue] += 1
        for queue, count in arriving.items():
            settings, _ = self._row(queue)
            if settings.overflow in ("block", "reject") and not self._has_room(
                queue, moment, count
            ):
                raise QueueIsFull(queue, settings.overflow)

    def _has_room(self, queue: str, moment: float, count: int = 1) -> bool:
        settings, _ = self._row(queue)
        return settings.maxsize <= 0 or self.waiting(queue, now=moment) + count <= settings.maxsize

    def _enqueue(self, put: Put, moment: float, *, bounded: bool = True, hops: int = 0) -> Enqueued:
        settings, version = self._row(put.queue)
        existing = self._holder_of_key(put)
        if existing is not None:
            return self._duplicate(put, existing, version)
        delay = 0.0
        if bounded and not self._has_room(put.queue, moment):
            match settings.overflow:
                case "drop-newest":
                    return Enqueued(_never_stored(put, moment), Fate.DROPPED, version)
                case "throttle":
                    excess = self.waiting(put.queue, now=moment) - settings.maxsize + 1
                    share = min(1.0, excess / settings.maxsize)
                    delay = settings.throttle_delay * share
                case "overflow":
                    return self._overflow(put, settings, version, moment, hops)
                case _:
                    raise QueueIsFull(put.queue, settings.overflow)
        message, fresh = self._insert(put, moment)
        if not fresh:
            return self._duplicate(put, message, version)
        return Enqueued(_stored(message), Fate.STORED, version, delay)

    def _overflow(
        self, put: Put, settings: QueueSettings, version: int, moment: float, hops: int
    ) -> Enqueued:
        if settings.overflow_to is not None:
            if hops >= LONGEST_OVERFLOW:
                raise QueueIsFull(put.queue, settings.overflow)
            return self._enqueue(_redirected(put, settings.overflow_to), moment, hops=hops + 1)
        message, fresh = self._insert(put, moment)
        if not fresh:
            return self._duplicate(put, message, version)
        error = {"type": "QueueFull", "module": None, "message": f"queue {put.queue!r} was full"}
        self._custom().dead_letter(put.queue, message.id, last_error=error, failed_at=moment)
        dead = self._custom().get(put.queue, message.id)
        return Enqueued(_stored(message if dead is None else dead), Fate.STORED, version)

    def _insert(self, put: Put, moment: float) -> tuple[Any, bool]:
        """The object's answer, and whether it stored something for this put.

        It does not say when another process had the key, but its answer then looks unlike what
        was asked for.
        """
        due, value = moment + put.delay, JSON_CODEC.decode(put.body)
        message = self._custom().enqueue(
            put.queue,
            value,
            available_at=due,
            dedupe_key=put.dedupe_key,
            priority=put.priority,
        )
        if put.dedupe_key is None:
            return message, True
        self._keys[put.queue, put.dedupe_key] = message.id
        fresh = (
            message.state == State.READY
            and message.attempts == 0
            and message.value == value
            and abs(message.available_at - due) < _SAME_MOMENT
        )
        return message, fresh

    def _holder_of_key(self, put: Put) -> Any | None:
        """The message that this object knows to have the put's key, while it is there."""
        if put.dedupe_key is None:
            return None
        key = (put.queue, put.dedupe_key)
        known = self._keys.get(key)
        message = None if known is None else self._custom().get(put.queue, known)
        if message is None:
            self._keys.pop(key, None)
        return message

    def _duplicate(self, put: Put, existing: Any, version: int) -> Enqueued:
        _refuse_conflict(put, existing)
        return Enqueued(_stored(existing), Fate.DUPLICATE, version)

    def _handed_out(
        self, queue: str, message: Any, remove: bool, moment: float
    ) -> list[StoredMessage]:
        try:
            stored = _stored(message)
        except InvalidMessage as error:
            described = describe_error(error)
            self._custom().dead_letter(queue, message.id, last_error=described, failed_at=moment)
            return []
        if remove:
            self._custom().ack(queue, message.id)
        return [stored]

    def _held(self, receipt: Receipt) -> Any | None:
        """The message, while this receipt may act on it."""
        message = self._custom().get(receipt.queue, receipt.id)
        if message is None or receipt.token is None:
            return message
        inflight = message.state == State.INFLIGHT
        if receipt.token == NEVER_LEASED:
            return None if inflight else message
        return message if inflight and message.attempts == receipt.token else None

    def _end(self, receipt: Receipt, settlement: Settlement, moment: float) -> bool:
        message = self._held(receipt)
        if message is None:
            return False
        custom, queue, id_ = self._custom(), receipt.queue, receipt.id
        match settlement:
            case Ack() | Cancel():
                return bool(custom.ack(queue, id_))
            case Release(delay, error):
                if message.state == State.DEAD:
                    return False
                failed_at = None if error is None else moment
                due = moment + delay
                return bool(
                    custom.release(
                        queue, id_, available_at=due, last_error=error, failed_at=failed_at
                    )
                )
            case DeadLetter(error):
                failed_at = None if error is None else moment
                return bool(custom.dead_letter(queue, id_, last_error=error, failed_at=failed_at))
            case Crashed(error):
                if message.state != State.INFLIGHT:
                    return False
                # It has no count of crashes: where the error is told, this one is a failure.
                return self._end(receipt, Release(error=error), moment)


class PollingWaiter:
    """Says after a short while that something may have changed."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def wait(self, timeout: float) -> bool:
        self._ended.wait(min(timeout, POLL_INTERVAL))
        return True

    async def wait_async(self, timeout: float) -> bool:
        # Loaded by programs that have a loop.
        import asyncio

        await asyncio.sleep(min(timeout, POLL_INTERVAL))
        return True

    def close(self) -> None:
        self._ended.set()


def _lacks(ability: str) -> UnsupportedByStore:
    return UnsupportedByStore(f"a store with only the simple verbs cannot {ability}")


def _refuse_settings_beyond_reach(settings: QueueSettings) -> None:
    """A setting that would be kept and not acted on is a promise broken in silence."""
    if settings.ordering == "per-key":
        raise _lacks("keep the messages of an ordering key in order")
    if settings.overflow == "drop-oldest":
        raise _lacks("find its oldest message in order to drop it")
    if settings.ttl is not None:
        raise _lacks("expire messages")
    if settings.fanout is not None:
        raise _lacks("hand out to subscribers")
    if settings.journal_payloads:
        raise _lacks("keep a journal")
    if settings.crash_limit not in (0, DEFAULT_SETTINGS.crash_limit):
        raise _lacks("tell a crash from a lease that ran out, so it has no crash limit")


def _refuse_put_beyond_reach(put: Put) -> None:
    if put.ordering_key is not None:
        raise InvalidMessage("an ordering key requires OrderingKeys")
    if put.codec != JSON_CODEC.id:
        raise _lacks(f"keep values of the codec {put.codec!r}, only of {JSON_CODEC.id!r}")
    if put.headers is not None:
        raise _lacks("keep headers")
    if put.ttl is not None:
        raise _lacks("expire messages")
    if put.dedupe_window > 0 or put.request_id is not None:
        raise _lacks("remember a key longer than its message")
    if put.id is not None:
        raise _lacks("take over the id of a message")


def _refuse_conflict(put: Put, existing: Any | None) -> None:
    if existing is None or not put.conflict_is_error:
        return
    body = JSON_CODEC.encode(existing.value)
    if JSON_CODEC.fingerprint(existing.value, body) != put.fingerprint:
        raise DuplicateConflict(
            f"dedupe key {put.dedupe_key!r} belongs to a message with another value"
        )


def _redirected(put: Put, queue: str) -> Put:
    return Put(
        queue,
        put.body,
        delay=put.delay,
        priority=put.priority,
        dedupe_key=put.dedupe_key,
        fingerprint=put.fingerprint,
        conflict_is_error=put.conflict_is_error,
    )


def _stored(message: Any) -> StoredMessage:
    """A message of the object as the store contract has it."""
    history = [dict(entry) for entry in getattr(message, "attempt_history", ())]
    return StoredMessage(
        id=message.id,
        queue=message.queue,
        body=JSON_CODEC.encode(message.value),
        codec=JSON_CODEC.id,
        headers=None,
        state=str(message.state),
        attempts=message.attempts,
        created_at=message.created_at,
        available_at=message.available_at,
        leased_until=message.leased_until,
        leased_by=message.leased_by,
        last_error=message.last_error,
        failed_at=message.failed_at,
        history=history,
        dedupe_key=message.dedupe_key,
        priority=message.priority,
        ordering_key=None,
        expires_at=None,
        failures=_failures(message, history),
        crashes=0,
        token=message.attempts,
    )


def _failures(message: Any, history: list[dict[str, Any]]) -> int:
    """The object's own count, or how often its history says that an attempt failed."""
    counted = getattr(message, "failures", 0)
    failures = 0
    for entry in history:
        if entry.get("type") == "requeued":
            failures = 0
        elif entry.get("type") == "released" and entry.get("last_error") is not None:
            failures += 1
    return int(counted) or failures


def _never_stored(put: Put, moment: float) -> StoredMessage:
    return StoredMessage(
        id=uuid.uuid4().hex,
        queue=put.queue,
        body=put.body,
        codec=put.codec,
        headers=None,
        state=State.READY.value,
        attempts=0,
        created_at=moment,
        available_at=moment + put.delay,
        leased_until=None,
        leased_by=None,
        last_error=None,
        failed_at=None,
        history=[],
        dedupe_key=put.dedupe_key,
        priority=put.priority,
        ordering_key=None,
        expires_at=None,
        failures=0,
        crashes=0,
        token=NEVER_LEASED,
    )


def _counted(stats: Any) -> QueueStats:
    """The object's statistics; it may answer with QueueStats, a mapping or an object like one."""
    if isinstance(stats, QueueStats):
        return stats
    names = QueueStats.__dataclass_fields__
    if isinstance(stats, Mapping):
        return QueueStats(**{name: stats[name] for name in names if name in stats})
    return QueueStats(**{name: getattr(stats, name) for name in names if hasattr(stats, name)})
