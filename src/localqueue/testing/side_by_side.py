"""A store and the reference model, side by side: each operation is done by both and compared.

Time is a number that only operations move. A store may sweep when it likes as long as nobody can
tell, so each time that has come is made known to it by a lease of nothing from every queue: from
then on everything that is due has happened in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

from localqueue.errors import LocalQueueError
from localqueue.message import QueueStats, Receipt
from localqueue.outcome import Settlement
from localqueue.stores.protocol import (
    Enqueued,
    LeaseRequest,
    Put,
    QueueIsFull,
    QueueStore,
    Settle,
    StoredMessage,
)
from localqueue.stores.records import RecordChange
from localqueue.testing.clock import ManualClock
from localqueue.testing.model import (
    FROM_THE_BEGINNING,
    WAITING,
    Id,
    ModelAnswer,
    ModelMessage,
    ModelReceipt,
    ReferenceModel,
)

START = 1_700_000_000.0
LOOK_EVERY = 5
LOOK_AT_ALL_EVERY = 250
HISTORY_KEPT_FOR_SURE = 10
"""A history is capped; up to this many attempts nothing may be missing."""

NOBODY: Id = (-1, -1)
"""The id of no message."""

T = TypeVar("T")


class Operation(NamedTuple):
    """One call, told so that it can be repeated: messages are named by the model's ids."""

    number: int
    at: float
    verb: str
    arguments: dict[str, Any]
    look_first: bool = False
    """Count and peek before anything that has come due is swept."""
    in_passing: bool = False
    """Look at nothing, neither before nor after: what was noted of it stays as it is. Nothing may
    become due meanwhile."""

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={_told(value)}" for name, value in self.arguments.items())
        look = " (after a look)" if self.look_first else " (in passing)" if self.in_passing else ""
        return f"{self.number:6} at {self.at - START:g}: {self.verb}({arguments}){look}"


class Planned(NamedTuple):
    """A settlement as the model knows it."""

    receipt: ModelReceipt
    settlement: Settlement
    records: tuple[RecordChange, ...] = ()
    puts: tuple[Put, ...] = ()


class Disagreement(AssertionError):
    """The store answered otherwise than the model."""


class SideBySide:
    """Runs operations on both. ``reopen`` closes the store and opens it again."""

    def __init__(self, store: QueueStore, *, reopen: Callable[[QueueStore], QueueStore]) -> None:
        self.store = store
        self.model = ReferenceModel()
        self.now = START
        self._reopen = reopen
        self._clock = ManualClock(START)
        self._ids: dict[Id, str] = {}
        self._owners: dict[str, Id] = {}
        self._tokens: dict[Id, int] = {}
        self._highest_token = 0
        self._marks: dict[int, tuple[str, Id]] = {}
        self._places: list[tuple[str, Id]] = []
        self._versions: dict[str, tuple[int, int]] = {}
        store.open_clock(self._clock)

    def run(self, operation: Operation) -> None:
        """Do it on both sides; Disagreement when an answer or a later look differs."""
        self.model.begin(operation.number)
        late = operation.verb.startswith("late_")
        if operation.at > self.now:
            self._clock.advance(operation.at - self.now)
            self.now = operation.at
            if operation.in_passing:
                self.model.sweep(self.now)
            elif not late:
                self._sweep(operation)
        getattr(self, operation.verb)(**operation.arguments)
        if late:
            self._sweep(operation)
        if not operation.in_passing:
            self._look(operation)

    def close(self) -> None:
        self.store.close()

    def _sweep(self, operation: Operation) -> None:
        if operation.look_first:
            for queue in self._queues_of(operation)[:2]:
                self._look_before_sweep(queue)
        self.model.sweep(self.now)
        if operation.verb == "lease_at_once":
            return
        leased = self.store.lease(LeaseRequest(tuple(self.model.queues), limit=0), now=self.now)
        self._same("a lease of nothing", [], leased)

    # --- operations ---------------------------------------------------------------------------
    def configure(self, queue: str, changes: dict[str, Any]) -> None:
        expected, got = self._both(
            lambda: self.model.configure(queue, changes, now=self.now),
            lambda: self.store.configure(queue, changes, now=self.now),
        )
        if isinstance(expected, Refused) or isinstance(got, Refused):
            self._same("configure", expected, got)
        else:
            self._same_settings(queue, expected, got)

    def put(self, puts: Sequence[Put]) -> None:
        self._same_puts(
            lambda: self.model.enqueue_many(puts, now=self.now),
            lambda: self.store.enqueue_many(puts, now=self.now),
        )

    def put_with_records(self, puts: Sequence[Put], changes: Sequence[RecordChange]) -> None:
        self._same_puts(
            lambda: self.model.enqueue_with_records(puts, changes, now=self.now),
            lambda: self.store.enqueue_with_records(puts, changes, now=self.now),
        )

    def _same_puts(self, model: Callable[[], Any], store: Callable[[], Any]) -> None:
        expected, got = self._both(model, store)
        if isinstance(expected, Refused) or isinstance(got, Refused):
            self._same("the answer to a put", expected, got)
            return
        self._same("the number of answers", len(expected), len(got))
        for answer, enqueued in zip(expected, got, strict=True):
            self._same_answer(answer, enqueued)

    def lease(self, request: LeaseRequest) -> None:
        expected = self.model.lease(request, now=self.now)
        self._same_lease(expected, self.store.lease(request, now=self.now))

    def lease_at_once(self, request: LeaseRequest) -> None:
        """Without telling the store first that time has passed."""
        self.lease(request)
        self._same(
            "a lease of nothing",
            [],
            self.store.lease(LeaseRequest(tuple(self.model.queues), limit=0), now=self.now),
        )

    def ack(self, receipts: Sequence[ModelReceipt], late: bool = False) -> None:
        receipts, proofs = self._receipts(receipts)
        expected = self.model.ack_many(receipts, now=self.now, late=late)
        self._same("ack", expected, self.store.ack_many(proofs, now=self.now))

    def release(
        self,
        receipts: Sequence[ModelReceipt],
        delay: float = 0.0,
        error: dict[str, Any] | None = None,
        late: bool = False,
    ) -> None:
        receipts, proofs = self._receipts(receipts)
        expected = self.model.release_many(
            receipts, delay=delay, error=error, now=self.now, late=late
        )
        got = self.store.release_many(proofs, delay=delay, error=error, now=self.now)
        self._same("release", expected, got)

    def dead_letter(
        self,
        receipts: Sequence[ModelReceipt],
        error: dict[str, Any] | None = None,
        late: bool = False,
    ) -> None:
        receipts, proofs = self._receipts(receipts)
        expected = self.model.dead_letter_many(receipts, error=error, now=self.now, late=late)
        got = self.store.dead_letter_many(proofs, error=error, now=self.now)
        self._same("dead_letter", expected, got)

    def extend(
        self,
        receipts: Sequence[ModelReceipt],
        timeout: float,
        note: str | None = None,
        late: bool = False,
    ) -> None:
        receipts, proofs = self._receipts(receipts)
        expected = self.model.extend(receipts, timeout=timeout, note=note, now=self.now, late=late)
        got = self.store.extend(proofs, timeout=timeout, note=note, now=self.now)
        self._same("extend", expected, got)

    def extend_of(self, liveness: str, timeout: float) -> None:
        expected = self.model.extend_of(liveness, timeout=timeout, now=self.now)
        got = self.store.extend_of(liveness, timeout=timeout, now=self.now)
        self._same("extend_of", expected, got)

    def end_leases_of(self, liveness: str, running: Sequence[Id]) -> None:
        known = [id for id in running if self._is_known(id)]
        expected = self.model.end_leases_of(liveness, known, now=self.now)
        got = self.store.end_leases_of(liveness, [self._public(id) for id in known], now=self.now)
        self._same("end_leases_of", expected, got)

    def late_ack(self, receipts: Sequence[ModelReceipt]) -> None:
        self.ack(receipts, late=True)

    def late_release(self, receipts: Sequence[ModelReceipt], delay: float) -> None:
        self.release(receipts, delay, late=True)

    def late_dead_letter(self, receipts: Sequence[ModelReceipt], error: dict[str, Any]) -> None:
        self.dead_letter(receipts, error, late=True)

    def late_extend(self, receipts: Sequence[ModelReceipt], timeout: float) -> None:
        self.extend(receipts, timeout, late=True)

    def settle(self, planned: Planned) -> None:
        for plan, settle in self._settles([planned]):
            expected, got = self._both(
                lambda: self.model.settle(*plan, now=self.now),  # noqa: B023  called at once
                lambda: self.store.settle(settle, now=self.now),  # noqa: B023
            )
            self._same("settle", expected, got)

    def settle_and_lease(self, planned: Sequence[Planned], request: LeaseRequest | None) -> None:
        pairs = self._settles(planned)
        settled = [self.model.settle(*plan, now=self.now) for plan, _ in pairs]
        leased = self.model.lease(request, now=self.now) if request else []
        got = self.store.settle_and_lease([settle for _, settle in pairs], request, now=self.now)
        self._same("settle", settled, got[0])
        self._same_lease(leased, got[1])

    def cancel(self, queue: str, id: Id) -> None:
        if not self._is_known(id):
            return
        expected = self.model.cancel(queue, id, now=self.now)
        got = self.store.cancel(queue, self._public(id), now=self.now)
        self._same("cancel", expected, got)

    def requeue(self, queue: str, ids: Sequence[Id], delay: float = 0.0) -> None:
        ids = [id for id in ids if self._is_known(id)]
        public = [self._public(id) for id in ids]
        expected = self.model.requeue_dead_many(queue, ids, delay=delay, now=self.now)
        got = self.store.requeue_dead_many(queue, public, delay=delay, now=self.now)
        self._same("requeue", expected, got)

    def prune(self, queue: str, older_than: float) -> None:
        old = self.model.old_dead_letters(queue, older_than=older_than, now=self.now)
        counted = self.store.count_dead_letters_older_than(
            queue, older_than=older_than, now=self.now
        )
        self._same("the count of old dead letters", len(old), counted)
        expected = self.model.prune_dead_letters(queue, older_than=older_than, now=self.now)
        got = self.store.prune_dead_letters(queue, older_than=older_than, now=self.now)
        self._same("prune", expected, got)

    def purge(self, queue: str) -> None:
        expected = self.model.purge(queue, now=self.now)
        self._same("purge", expected, self.store.purge(queue, now=self.now))

    def subscribe(self, topic: str, subscriber: str, start: str | int = "now") -> None:
        """``start`` is a word, or the number of the operation that took a mark."""
        if isinstance(start, int) and start not in self._marks:
            return
        position, after = "now", None
        if start == "earliest":
            position, after = "earliest", FROM_THE_BEGINNING
        elif isinstance(start, int):
            position, after = self._marks[start]
        expected, got = self._both(
            lambda: self.model.subscribe(topic, subscriber, after=after, now=self.now),
            lambda: self.store.subscribe(topic, subscriber, start=position, now=self.now),
        )
        self._same("subscribe", expected, got)

    def unsubscribe(self, topic: str, subscriber: str) -> None:
        expected = self.model.unsubscribe(topic, subscriber, now=self.now)
        got = self.store.unsubscribe(topic, subscriber, now=self.now)
        self._same("unsubscribe", expected, got)

    def heartbeat(self, queue: str, worker: str) -> None:
        self.model.record_worker_heartbeat(queue, worker, now=self.now)
        self.store.record_worker_heartbeat(queue, worker, now=self.now)

    def change_records(self, changes: Sequence[RecordChange]) -> None:
        expected, got = self._both(
            lambda: self.model.change_records(changes, now=self.now),
            lambda: self.store.change_records(changes, now=self.now),
        )
        self._same("the versions of records", expected, got)

    def scan_records(self, kind: str, prefix: str, after: str, limit: int) -> None:
        expected = self.model.scan_records(
            kind, prefix=prefix, after=after, limit=limit, now=self.now
        )
        got = self.store.scan_records(kind, prefix=prefix, after=after, limit=limit, now=self.now)
        self._same("records", expected, got)

    def load_record(self, kind: str, key: str) -> None:
        expected = self.model.load_record(kind, key, now=self.now)
        self._same("record", expected, self.store.load_record(kind, key, now=self.now))

    def late_prune_records(self, kind: str) -> None:
        """Before anybody has looked: a sweep forgets them too."""
        expected = self.model.prune_records(kind, now=self.now)
        self._same("pruned records", expected, self.store.prune_records(kind, now=self.now))

    def mark(self) -> None:
        """Remember this place of the journal: a subscriber may want to start here."""
        self._marks[self.model.operation] = (self.store.journal_end(), (self.model.operation, 0))

    def reopen(self) -> None:
        self.store = self._reopen(self.store)
        self.store.open_clock(self._clock)

    def reboot(self) -> None:
        self.store = self._reopen(self.store)
        self._clock.reboot()
        offset = self.store.open_clock(self._clock)
        self._same("store time after a boot", self.now, offset + self._clock.steady())
        self.model.new_boot(now=self.now)
        leased = self.store.lease(LeaseRequest(tuple(self.model.queues), limit=0), now=self.now)
        self._same("a lease of nothing", [], leased)

    # --- looking ------------------------------------------------------------------------------
    def _look(self, operation: Operation) -> None:
        if self._places:
            self._look_at_message(*self._places[operation.number * 7 % len(self._places)])
        if operation.number % LOOK_EVERY:
            return
        queues = self._queues_of(operation)[:3]
        due = self.model.next_due(queues)
        self._same("when something is due", due, self.store.next_due(queues))
        if operation.number % LOOK_AT_ALL_EVERY == 0:
            queues = sorted(self.model.queues)
            self._same("the names of queues", queues, self.store.queues())
        for queue in queues:
            self._look_at(queue)

    def _look_at(self, queue: str) -> None:
        self._look_at_counts(queue)
        self._same(
            f"waiting of {queue}",
            self.model.waiting(queue),
            self.store.waiting(queue, now=self.now),
        )
        self._same_settings(queue, self.model.settings(queue), self.store.settings(queue))
        self._same(
            f"subscribers of {queue}", self.model.subscribers(queue), self.store.subscribers(queue)
        )
        self._same_messages(
            f"dead letters of {queue}",
            self.model.dead_letters(queue, limit=6),
            self.store.dead_letters(queue, limit=6),
        )

    def _look_before_sweep(self, queue: str) -> None:
        """Counts are as if everything that is due had been swept.

        One thing may wait for the sweep: that the next of a key comes forward for a head that
        expires. Then only what leaves is compared.
        """
        held = self.model.queues[queue].in_state("held")
        expected = _counts(self.model.stats(queue, now=self.now))
        got = _counts(self.store.stats(queue, now=self.now))
        if any(message.state != "held" for message in held):
            for name in ("ready", "delayed", "held"):
                expected.pop(name)
                got.pop(name)
        else:
            size = self.store.qsize(queue, now=self.now)
            self._same(f"qsize of {queue} before a sweep", expected["ready"], size)
        self._same(f"counts of {queue} before a sweep", expected, got)

    def _look_at_counts(self, queue: str) -> None:
        expected = self.model.stats(queue, now=self.now)
        got = self.store.stats(queue, now=self.now)
        self._same(f"stats of {queue}", _rounded(expected), _rounded(got))
        size = self.store.qsize(queue, now=self.now)
        self._same(f"qsize of {queue}", expected.ready, size)
        self._same_messages(
            f"peek of {queue}",
            self.model.peek(queue, 4, now=self.now),
            self.store.peek(queue, 4, now=self.now),
        )

    def _look_at_message(self, queue: str, id: Id) -> None:
        expected = self.model.read(queue, id)
        got = self.store.read(queue, self._public(id))
        if expected is None or got is None:
            self._same(f"message {id} of {queue}", expected, got)
            return
        self._same_message(f"message {id} of {queue}", expected, got)
        if expected.attempts <= HISTORY_KEPT_FOR_SURE:
            seen = tuple((e["type"], e["at"], e["attempt"]) for e in got.history)
            self._same(f"history of {id}", _attempts(expected.history), _attempts(seen))

    def _queues_of(self, operation: Operation) -> list[str]:
        found: list[str] = []
        for value in operation.arguments.values():
            found += _names(value)
        return list(dict.fromkeys(name for name in found if name in self.model.queues))

    # --- comparing ----------------------------------------------------------------------------
    def _both(self, model: Callable[[], Any], store: Callable[[], Any]) -> tuple[Any, Any]:
        return _attempt(model), _attempt(store)

    def _same(self, what: str, expected: object, got: object) -> None:
        if expected != got:
            raise Disagreement(f"{what}\n  model: {expected}\n  store: {got}")

    def _same_settings(self, queue: str, expected: Any, got: Any) -> None:
        """Equal settings; a version that grows with each change, and not with a mere look."""
        self._same(f"settings of {queue}", expected and expected[0], got and got[0])
        if expected is None:
            return
        mine, theirs = self._versions.get(queue, (0, 0))
        if got[1] < theirs or (expected[1] > mine and got[1] == theirs):
            raise Disagreement(f"version {got[1]} of {queue} after {theirs}")
        self._versions[queue] = (expected[1], got[1])

    def _same_answer(self, expected: ModelAnswer, got: Enqueued) -> None:
        self._same("fate", expected.fate, got.fate)
        self._same("throttle delay", round(expected.delay, 6), round(got.delay, 6))
        what, message = "the message of a put", got.message
        if expected.is_there:
            self._same_message(what, expected.message, message)
            return
        self._bind(what, expected.message, message)
        self._same(what, expected.message.body, message.body)
        self._same(what, ("ready", 0, 0), (str(message.state), message.attempts, message.token))

    def _same_lease(self, expected: list[ModelMessage], got: Sequence[StoredMessage]) -> None:
        self._same_messages("lease", expected, got)
        for message, stored in zip(expected, got, strict=True):
            if stored.token <= self._highest_token:
                raise Disagreement(f"token {stored.token} does not follow {self._highest_token}")
            self._highest_token = stored.token
            assert message.token is not None
            self._tokens[message.token] = stored.token

    def _same_messages(
        self, what: str, expected: list[ModelMessage], got: Sequence[StoredMessage]
    ) -> None:
        self._same(what, [m.body for m in expected], [m.body for m in got])
        for message, stored in zip(expected, got, strict=True):
            self._same_message(what, message, stored)

    def _same_message(self, what: str, expected: ModelMessage, got: StoredMessage) -> None:
        self._bind(what, expected, got)
        mine, theirs = _of_model(expected), _of_store(got)
        if mine != theirs:
            names = [
                f"{name}: model {value!r}, store {other!r}"
                for name, value, other in zip(_FIELDS, mine, theirs, strict=True)
                if value != other
            ]
            raise Disagreement(f"{what}, message {expected.id}: {'; '.join(names)}")
        error = expected.last_error or {}
        stored = got.last_error or {}
        if any(stored.get(name) != value for name, value in error.items()):
            raise Disagreement(f"{what}: last error\n  model: {error}\n  store: {stored}")

    def _bind(self, what: str, expected: ModelMessage, got: StoredMessage) -> None:
        """The first time that a message is seen tells which id the store gave it."""
        if expected.id not in self._ids and got.id not in self._owners:
            self._ids[expected.id] = got.id
            self._owners[got.id] = expected.id
            self._places = [*self._places[-60:], (expected.queue, expected.id)]
        if self._ids.get(expected.id) != got.id:
            raise Disagreement(
                f"{what}: the model has {expected.id}, the store {self._owners.get(got.id)}"
            )

    def _public(self, id: Id) -> str:
        return self._ids.get(id, "0" * 32)

    def _is_known(self, id: Id) -> bool:
        """Whether the store has said what it calls this message. NOBODY is unknown to both."""
        return id in self._ids or id == NOBODY

    def _receipts(
        self, receipts: Sequence[ModelReceipt]
    ) -> tuple[list[ModelReceipt], list[Receipt]]:
        """Receipts of leases that were left out of a shorter run are left out too."""
        known = [
            receipt
            for receipt in receipts
            if self._is_known(receipt.id)
            and (not isinstance(receipt.token, tuple) or receipt.token in self._tokens)
        ]
        return known, [self._receipt(receipt) for receipt in known]

    def _receipt(self, receipt: ModelReceipt) -> Receipt:
        token = receipt.token
        number = self._tokens[token] if isinstance(token, tuple) else token
        return Receipt(receipt.queue, self._public(receipt.id), number)

    def _settles(self, planned: Iterable[Planned]) -> list[tuple[Planned, Settle]]:
        return [
            (plan, Settle(self._receipt(plan.receipt), plan.settlement, plan.records, plan.puts))
            for plan in planned
            if self._receipts([plan.receipt])[0]
        ]


class Refused(NamedTuple):
    """A call ended with an error of the contract."""

    kind: type[Exception]


def _attempt(call: Callable[[], T]) -> T | Refused:
    try:
        return call()
    except (LocalQueueError, QueueIsFull) as error:
        return Refused(type(error))


_FIELDS = (
    "queue", "body", "codec", "headers", "state", "attempts", "created_at", "available_at",
    "leased_until", "leased_by", "failures", "crashes", "failed_at", "dedupe_key", "priority",
    "ordering_key", "expires_at", "has an error",
)  # fmt: skip


def _of_model(message: ModelMessage) -> tuple[Any, ...]:
    state = "ready" if message.state in WAITING else message.state
    dead = state == "dead"
    return (
        message.queue, message.body, message.codec, message.headers, state, message.attempts,
        message.created_at, None if dead else message.available_at, message.leased_until,
        message.leased_by, message.failures, message.crashes, message.failed_at,
        message.dedupe_key, message.priority, message.ordering_key,
        None if dead else message.expires_at, message.last_error is not None,
    )  # fmt: skip


def _of_store(message: StoredMessage) -> tuple[Any, ...]:
    dead = message.state == "dead"
    return (
        message.queue, message.body, message.codec, message.headers, str(message.state),
        message.attempts, message.created_at, None if dead else message.available_at,
        message.leased_until, message.leased_by, message.failures, message.crashes,
        message.failed_at, message.dedupe_key, message.priority, message.ordering_key,
        None if dead else message.expires_at, message.last_error is not None,
    )  # fmt: skip


def _rounded(stats: QueueStats) -> dict[str, Any]:
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in asdict(stats).items()
    }


def _counts(stats: QueueStats) -> dict[str, Any]:
    return {name: value for name, value in asdict(stats).items() if not name.endswith("seconds")}


Told = tuple[tuple[str, float, int], ...]


def _attempts(history: Told) -> Told:
    """Leases, how they ended, and requeues; whether a burial without a lease is told is open."""
    return tuple(
        entry
        for before, entry in zip((("", 0.0, 0), *history), history, strict=False)
        if entry[0] != "dead_lettered" or before[0] == "leased"
    )


def _told(value: object) -> str:
    """An argument, without the fields that were left at their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        told = {item.name: item.default for item in fields(value)}
    elif isinstance(value, (Put, Planned)):
        told = {name: value._field_defaults.get(name, ...) for name in value._fields}
    elif isinstance(value, (list, tuple)) and not isinstance(value, ModelReceipt):
        return f"[{', '.join(map(_told, value))}]"
    else:
        return repr(value)
    arguments = [
        f"{name}={_told(getattr(value, name))}"
        for name, default in told.items()
        if getattr(value, name) != default
    ]
    return f"{type(value).__name__}({', '.join(arguments)})"


def _names(value: object) -> list[str]:
    """The queues that an argument speaks of."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, (Put, ModelReceipt)):
        return [value.queue]
    if isinstance(value, LeaseRequest):
        return list(value.queues)
    if isinstance(value, Planned):
        return [value.receipt.queue, *(put.queue for put in value.puts)]
    if isinstance(value, (list, tuple)):
        return [name for item in value for name in _names(item)]
    return []
