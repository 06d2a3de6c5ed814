"""Seeded operations on queues of every kind of settings.

What comes next depends on the seed and on the model's state alone, so a run is repeated by its seed
and its number of operations.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from localqueue.outcome import Ack, Crashed, DeadLetter, Release, Settlement
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.records import RecordChange
from localqueue.testing.model import WAITING, Id, ModelMessage, ModelReceipt, ReferenceModel
from localqueue.testing.side_by_side import NOBODY, Operation, Planned

KEEPS = {"journal_payloads": True, "journal_max_age": 3e8}
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "priority": {"ordering": "priority"},
    "keys": {"ordering": "per-key", "crash_limit": 2},
    "keys-ttl": {"ordering": "per-key", "ttl": 20.0, "on_expiry": "dead-letter"},
    "ttl": {"ttl": 12.0},
    "one-crash": {"ordering": "priority", "crash_limit": 1, "ttl": 60.0},
    "quiet": {"ordering": "best-effort", "journal": False},
    "block": {"maxsize": 5},
    "reject": {"maxsize": 5, "overflow": "reject", "ordering": "per-key"},
    "newest": {"maxsize": 4, "overflow": "drop-newest", "ordering": "priority"},
    "oldest": {"maxsize": 4, "overflow": "drop-oldest", "ordering": "priority"},
    "oldest-keys": {"maxsize": 5, "overflow": "drop-oldest", "ordering": "per-key"},
    "throttle": {"maxsize": 3, "overflow": "throttle", "throttle_delay": 2.0},
    "overflow": {"maxsize": 3, "overflow": "overflow", "overflow_to": "spill"},
    "spill": {"maxsize": 4, "overflow": "overflow", "crash_limit": 1},
    "ring-1": {"maxsize": 2, "overflow": "overflow", "overflow_to": "ring-2"},
    "ring-2": {"maxsize": 2, "overflow": "overflow", "overflow_to": "ring-1"},
}
TOPICS: dict[str, dict[str, Any]] = {
    "copy": {"fanout": "copy", **KEEPS},
    "copy-keys": {"fanout": "copy", "ordering": "per-key", "maxsize": 6, "overflow": "reject"},
    "copy-oldest": {"fanout": "copy", "maxsize": 3, "overflow": "drop-oldest"},
    "cursor": {"fanout": "cursor"},
    "cursor-reject": {"fanout": "cursor", "maxsize": 5, "overflow": "reject"},
    "cursor-ttl": {"fanout": "cursor", "ttl": 15.0, "on_expiry": "dead-letter", **KEEPS},
    "hybrid": {"fanout": "hybrid", "ordering": "per-key", **KEEPS},
    "hybrid-priority": {"fanout": "hybrid", "ordering": "priority", "ttl": 25.0},
    "hybrid-oldest": {
        "fanout": "hybrid", "ordering": "priority", "maxsize": 4, "overflow": "drop-oldest",
    },
}  # fmt: skip
FAMILIES = (
    ("plain",), ("priority",), ("keys",), ("keys-ttl",), ("ttl",), ("one-crash",), ("quiet",),
    ("block",), ("reject",), ("newest",), ("oldest",), ("oldest-keys",), ("throttle",),
    ("overflow", "spill"), ("ring-1", "ring-2"), *((topic,) for topic in TOPICS),
)  # fmt: skip
"""Queues that are used together for a while, so that things meet."""

SUBSCRIBERS = ("a", "b", "c")
WORKERS = (None, None, "anna", "bert")
ALIVE = ("alive", "alive too")
KINDS_OF_RECORD = ("result", "ledger")
MOST_WAITING = 20
FLOOD = 300
DAY = 86_400.0


class RandomOperations:
    """An endless choice of operations for a model."""

    def __init__(self, seed: int, model: ReferenceModel, now: float) -> None:
        self._random = Random(seed)
        self._model = model
        self._now = now
        self._number = 0
        self._todo = deque((0.0, *step) for step in self._beginning())
        self._family: tuple[str, ...] = FAMILIES[0]
        self._stay = 0
        self._receipts: deque[ModelReceipt] = deque(maxlen=40)
        self._marks: deque[int] = deque(maxlen=5)

    def _beginning(self) -> list[tuple[str, dict[str, Any]]]:
        first: list[tuple[str, dict[str, Any]]] = [
            ("configure", {"queue": queue, "changes": changes})
            for queue, changes in {**QUEUES, **TOPICS}.items()
            if changes
        ]
        for topic in TOPICS:
            first += [("subscribe", {"topic": topic, "subscriber": name}) for name in "ab"]
        return first

    def next(self) -> Operation:
        self._number += 1
        if self._todo:
            seconds, verb, arguments = self._todo.popleft()
            self._now += seconds
            return Operation(self._number, self._now, verb, arguments)
        if self._stay == 0:
            self._family = self._random.choice(FAMILIES)
            self._stay = self._random.randrange(30, 120)
        self._stay -= 1
        return self._late() or self._usual()

    def _usual(self) -> Operation:
        self._now += self._step()
        name = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        verb, arguments = getattr(self, f"_{name}")()
        if verb == "lease" and self._random.random() < 0.3:
            verb = "lease_at_once"
        return Operation(
            self._number, self._now, verb, arguments, look_first=self._random.random() < 0.2
        )

    def _late(self) -> Operation | None:
        """End a lease that is over before anybody has looked."""
        if self._random.random() > 0.02:
            return None
        queue = self._model.queues[self._queue()]
        leased = queue.in_state("inflight")
        if not leased:
            return None
        message = self._random.choice(leased)
        assert message.leased_until is not None
        self._now = max(self._now, message.leased_until + self._random.choice((0.0, 0.25, 3.0)))
        verb, arguments = self._random.choice((
            ("late_ack", {}),
            ("late_release", {"delay": self._delay()}),
            ("late_dead_letter", {"error": self._error()}),
            ("late_extend", {"timeout": 5.0}),
        ))  # fmt: skip
        return Operation(
            self._number, self._now, verb, {"receipts": [receipt_of(message)], **arguments}
        )

    def _step(self) -> float:
        """Whole quarters of seconds: exact as floats, and often the same moment."""
        kind = self._random.random()
        if kind < 0.45:
            return 0.0
        if kind < 0.8:
            return self._random.randrange(1, 9) / 4
        if kind < 0.97:
            return self._random.randrange(8, 60) / 4
        if kind < 0.999:
            return float(self._random.randrange(20, 200))
        return DAY * self._random.choice((0.5, 1.0, 1.25))

    # --- what is spoken of --------------------------------------------------------------------
    def _queue(self) -> str:
        """A queue that has messages: a topic stands for one of its subscribers."""
        name = self._random.choice(self._family)
        if self._random.random() < 0.05:
            name = self._random.choice([*QUEUES, *TOPICS])
        if name not in TOPICS:
            return name if name in self._model.queues else "priority"
        queue = f"{name}.{self._random.choice(SUBSCRIBERS)}"
        return queue if queue in self._model.queues else f"{name}.a"

    def _topic(self) -> str:
        topics = [name for name in self._family if name in TOPICS]
        return self._random.choice(topics or list(TOPICS))

    def _message(self, *states: str) -> ModelMessage | None:
        queue = self._model.queues[self._queue()]
        found = queue.in_state(*states) if states else list(queue.messages.values())
        return self._random.choice(found) if found else None

    def _some_receipts(self) -> list[ModelReceipt]:
        if self._random.random() < 0.15:
            leased = self._model.queues[self._queue()].in_state("inflight")
            return [receipt_of(message) for message in leased[:10]]
        return [self._receipt() for _ in range(self._random.choice((1, 1, 1, 2, 3)))]

    def _receipt(self) -> ModelReceipt:
        kind = self._random.random()
        if kind < 0.6:
            message = self._message("inflight")
            if message is not None:
                self._receipts.append(receipt_of(message))
                return receipt_of(message)
        if kind < 0.8 and self._receipts:
            return self._random.choice(self._receipts)
        message = self._message()
        if message is None:
            return ModelReceipt(self._queue(), NOBODY, 0)
        return ModelReceipt(message.queue, message.id, self._random.choice((0, 0, None)))

    def _delay(self) -> float:
        return self._random.choice((0.0, 0.0, 0.0, 0.5, 3.0, 10.0))

    def _error(self) -> dict[str, Any]:
        return {"type": "ValueError", "module": "builtins", "message": f"no {self._number}"}

    def _put(self, queue: str, number: int) -> Put:
        random = self._random
        settings = self._model.queues[queue].settings if queue in self._model.queues else None
        ordering = settings.ordering if settings else "fifo-ready"
        mistaken = random.random() < 0.01
        special = settings is None or settings.fanout != "cursor" or mistaken
        body = f'"{self._number}-{number}"'.encode()
        if random.random() < 0.03:
            body = body.ljust(6_000)
        options: dict[str, Any] = {}
        if special and random.random() < 0.3:
            options["delay"] = self._delay()
        if (ordering == "priority" and special) or mistaken:
            options["priority"] = random.choice((0, 0, 1, 5))
        if (ordering == "per-key" or random.random() < 0.01) and random.random() < 0.85:
            options["ordering_key"] = random.choice("xxyz")
        if random.random() < 0.15:
            options["ttl"] = random.choice((1.0, 4.0, 8.0, 30.0))
        if random.random() < 0.25:
            options["dedupe_key"] = random.choice(("k1", "k2", "k3"))
            options["dedupe_window"] = random.choice((0.0, 0.0, 5.0, 30.0))
            options["fingerprint"] = random.choice((1, 1, 1, 2))
            options["conflict_is_error"] = random.random() < 0.3
        if random.random() < 0.06:
            options["request_id"] = f"r{self._number // 40}"
        if random.random() < 0.06:
            options["headers"] = b'{"trace":"1"}'
        if random.random() < 0.04:
            options["codec"] = "bytes"
        return Put(queue, body, **options)

    def _target(self) -> str:
        """Where a put goes: a queue of the family, or a topic."""
        name = self._random.choice(self._family)
        if self._random.random() < 0.05:
            name = self._random.choice([*QUEUES, *TOPICS])
        return name

    def _is_crowded(self, name: str) -> bool:
        names = [name, *(f"{name}.{subscriber}" for subscriber in SUBSCRIBERS)]
        return any(self._model.waiting(queue) > MOST_WAITING for queue in names)

    def _request(self) -> LeaseRequest:
        random = self._random
        queues = tuple(self._queue() for _ in range(random.choice((1, 1, 1, 2, 3))))
        return LeaseRequest(
            tuple(dict.fromkeys(queues)),
            limit=random.choice((1, 1, 1, 2, 3, 8)),
            timeout=random.choice((2.0, 5.0, 15.0, 60.0)),
            worker=random.choice(WORKERS),
            liveness=random.choice((None, *ALIVE)),
            remove=random.random() < 0.08,
            prefetched=random.random() < 0.3,
        )

    def _records(self) -> tuple[RecordChange, ...]:
        random = self._random
        return tuple(
            RecordChange(
                random.choice(KINDS_OF_RECORD),
                random.choice(("a", "ab", "b", "b:1", "ü")),
                random.choice((None, b"1", b"22")),
                expect=random.choice((None, None, None, 0, 1, 2)),
                ttl=random.choice((None, None, 3.0, 20.0)),
            )
            for _ in range(random.choice((1, 1, 2)))
        )

    def _settlement(self) -> Settlement:
        kind = self._random.random()
        if kind < 0.6:
            return Ack()
        error = self._error() if self._random.random() < 0.6 else None
        if kind > 0.95:
            return Crashed(error)
        failures = self._random.choice((1, 1, 1, 3))
        if kind < 0.85:
            return Release(self._delay(), error, failures)
        return DeadLetter(error, failures)

    def _planned(self) -> Planned:
        random = self._random
        records = self._records() if random.random() < 0.4 else ()
        puts: tuple[Put, ...] = ()
        if random.random() < 0.4:
            target = self._target()
            if not self._is_crowded(target):
                puts = (self._put(target, 1),)
        return Planned(self._receipt(), self._settlement(), records, puts)

    # --- operations ---------------------------------------------------------------------------
    def _enqueue(self) -> tuple[str, dict[str, Any]]:
        name = self._target()
        if self._is_crowded(name):
            if self._random.random() < 0.1:
                return "purge", {"queue": self._queue()}
            return self._lease_and_forget()
        if self._random.random() < 0.1:
            bodies = [f'"{self._number}-{number}"'.encode() for number in range(8)]
            return "put", {"puts": [Put(name, body) for body in bodies]}
        count = self._random.choice((1, 1, 1, 1, 2, 3, 6))
        return "put", {"puts": [self._put(name, number) for number in range(count)]}

    def _enqueue_to_several(self) -> tuple[str, dict[str, Any]]:
        names = [name for name in (self._target(), self._target()) if not self._is_crowded(name)]
        return "put", {"puts": [self._put(name, n) for n, name in enumerate(names)]}

    def _lease_and_forget(self) -> tuple[str, dict[str, Any]]:
        return "lease", {"request": LeaseRequest((self._queue(),), limit=10, remove=True)}

    def _flood(self) -> tuple[str, dict[str, Any]]:
        """More messages, and then leases, become due at once than a sweep takes in one slice."""
        puts = [Put("plain", f'"{self._number}-{n}"'.encode(), delay=2.0) for n in range(FLOOD)]
        all_of_them = {"request": LeaseRequest(("plain",), limit=2 * FLOOD, timeout=2.0)}
        one = {"request": LeaseRequest(("plain",))}
        self._todo.extend([
            (2.0, "lease", all_of_them),
            (2.0, "lease_at_once", one),
            (0.0, "purge", {"queue": "plain"}),
        ])  # fmt: skip
        return "put", {"puts": puts}

    def _lease(self) -> tuple[str, dict[str, Any]]:
        return "lease", {"request": self._request()}

    def _ack(self) -> tuple[str, dict[str, Any]]:
        return "ack", {"receipts": self._some_receipts()}

    def _release(self) -> tuple[str, dict[str, Any]]:
        error = self._error() if self._random.random() < 0.5 else None
        receipts = self._some_receipts()
        return "release", {"receipts": receipts, "delay": self._delay(), "error": error}

    def _dead_letter(self) -> tuple[str, dict[str, Any]]:
        error = self._error() if self._random.random() < 0.7 else None
        return "dead_letter", {"receipts": self._some_receipts(), "error": error}

    def _extend(self) -> tuple[str, dict[str, Any]]:
        note = self._random.choice((None, "prefetched", "half done"))
        receipts = self._some_receipts()
        leased = self._model.queues[self._queue()].in_state("inflight")
        receipts += [receipt_of(message) for message in leased if message.cancel_asked][:2]
        timeout = self._random.choice((3.0, 20.0))
        return "extend", {"receipts": receipts, "timeout": timeout, "note": note}

    def _extend_of(self) -> tuple[str, dict[str, Any]]:
        timeout = self._random.choice((1.0, 10.0, 40.0))
        return "extend_of", {"liveness": self._random.choice(ALIVE), "timeout": timeout}

    def _end_leases_of(self) -> tuple[str, dict[str, Any]]:
        leased = [
            message.id
            for queue in self._model.queues.values()
            for message in queue.in_state("inflight")
        ]
        running = self._random.sample(leased, min(len(leased), 3))
        return "end_leases_of", {"liveness": self._random.choice(ALIVE), "running": running}

    def _settle(self) -> tuple[str, dict[str, Any]]:
        return "settle", {"planned": self._planned()}

    def _settle_and_lease(self) -> tuple[str, dict[str, Any]]:
        planned = [self._planned() for _ in range(self._random.choice((0, 1, 2, 3)))]
        # Puts that are refused raise, and a batch that raises is told apart by settle alone.
        planned = [plan._replace(puts=()) for plan in planned]
        request = self._request() if self._random.random() < 0.9 else None
        return "settle_and_lease", {"planned": planned, "request": request}

    def _cancel(self) -> tuple[str, dict[str, Any]]:
        queue = self._model.queues[self._queue()]
        known: list[Id] = [*queue.messages, *(message.id for message in queue.unread)]
        known += [receipt.id for receipt in self._receipts if receipt.queue == queue.name]
        id = self._random.choice(known) if known else NOBODY
        return "cancel", {"queue": queue.name, "id": id}

    def _requeue(self) -> tuple[str, dict[str, Any]]:
        queue = self._queue()
        dead = [message.id for message in self._model.dead_letters(queue)]
        waiting = [message.id for message in self._model.queues[queue].in_state(*WAITING)]
        ids = self._random.sample(dead, min(len(dead), 2)) + waiting[:1]
        return "requeue", {"queue": queue, "ids": ids, "delay": self._delay()}

    def _prune(self) -> tuple[str, dict[str, Any]]:
        return "prune", {"queue": self._queue(), "older_than": self._random.choice((0.0, 10, 60.0))}

    def _purge(self) -> tuple[str, dict[str, Any]]:
        queue = self._target() if self._random.random() < 0.2 else self._queue()
        return "purge", {"queue": queue}

    def _pause(self) -> tuple[str, dict[str, Any]]:
        paused = [name for name, queue in self._model.queues.items() if queue.settings.paused]
        if paused and self._random.random() < 0.8:
            return "configure", {"queue": paused[0], "changes": {"paused": False}}
        return "configure", {"queue": self._queue(), "changes": {"paused": True}}

    def _configure(self) -> tuple[str, dict[str, Any]]:
        name = self._target() if self._random.random() < 0.5 else self._queue()
        change = self._random.choice((
            {"crash_limit": self._random.choice((0, 1, 2, 3))},
            {"on_expiry": self._random.choice(("drop", "dead-letter"))},
            {"ttl": self._random.choice((None, 10.0, 25.0))},
            {"throttle_delay": 3.0},
            {"maxsize": self._random.choice((3, 4, 6))} if self._is_bounded(name) else {},
            {"no such setting": 1},
        ))  # fmt: skip
        return "configure", {"queue": name, "changes": change}

    def _is_bounded(self, name: str) -> bool:
        return name in self._model.queues and self._model.queues[name].settings.maxsize > 0

    def _subscription(self) -> tuple[str, dict[str, Any]]:
        topic = self._topic()
        name = self._random.choice(SUBSCRIBERS)
        there = self._model.subscribers(topic)
        if name in there and self._random.random() < (0.9 if name == "c" else 0.3):
            again = {"topic": topic, "subscriber": name, "start": "now"}
            self._todo.append((1.0, "subscribe", again))
            return "unsubscribe", {"topic": topic, "subscriber": name}
        starts: list[str | int] = ["now", "now", "earliest", *self._marks]
        start = self._random.choice(starts)
        return "subscribe", {"topic": topic, "subscriber": name, "start": start}

    def _mark(self) -> tuple[str, dict[str, Any]]:
        self._marks.append(self._number)
        return "mark", {}

    def _heartbeat(self) -> tuple[str, dict[str, Any]]:
        return "heartbeat", {"queue": self._queue(), "worker": "anna"}

    def _change_records(self) -> tuple[str, dict[str, Any]]:
        return "change_records", {"changes": self._records()}

    def _put_with_records(self) -> tuple[str, dict[str, Any]]:
        names = [name for name in (self._target(),) if not self._is_crowded(name)]
        puts = [self._put(name, n) for name in names for n in range(self._random.choice((1, 3)))]
        return "put_with_records", {"puts": puts, "changes": self._records()}

    def _read_records(self) -> tuple[str, dict[str, Any]]:
        random = self._random
        kind = random.choice(KINDS_OF_RECORD)
        if random.random() < 0.2:
            return "late_prune_records", {"kind": kind}
        if random.random() < 0.4:
            return "load_record", {"kind": kind, "key": random.choice(("a", "b", "c"))}
        prefix, after = random.choice(("", "b", "a")), random.choice(("", "a", "b"))
        limit = random.choice((1, 3, 100))
        return "scan_records", {"kind": kind, "prefix": prefix, "after": after, "limit": limit}

    def _reopen(self) -> tuple[str, dict[str, Any]]:
        if self._random.random() < 0.6:
            return "reopen", {}
        # Somebody is at work when the host goes down.
        self._todo.append((0.0, "reboot", {}))
        return "lease", {"request": LeaseRequest((self._queue(),), 3, 60.0, liveness="alive")}


_WEIGHTS = {
    "enqueue": 28, "enqueue_to_several": 3, "lease": 22, "ack": 9, "release": 8, "dead_letter": 5,
    "extend": 4, "extend_of": 1, "end_leases_of": 1, "settle": 6, "settle_and_lease": 4,
    "cancel": 4, "requeue": 4, "prune": 1.2, "purge": 0.4, "pause": 1, "configure": 1,
    "subscription": 2, "mark": 0.3, "heartbeat": 0.5, "change_records": 2,
    "put_with_records": 2,
    "read_records": 1.2, "reopen": 0.25, "flood": 0.05,
}  # fmt: skip


def receipt_of(message: ModelMessage) -> ModelReceipt:
    return ModelReceipt(message.queue, message.id, message.token)
