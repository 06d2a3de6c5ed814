"""The store contract: what every store does, and the words it is spoken to in.

Every verb is one transaction. Batches are all or nothing for puts and answer one by one for the
rest. Times are store time (see ``clock.py``): verbs get ``now`` as a number or as a callable that
is read once the store's lock is held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from localqueue.clock import Clock, Now
from localqueue.message import NEVER_LEASED, QueueStats, Receipt
from localqueue.outcome import Settlement
from localqueue.stores.records import Record, RecordChange
from localqueue.stores.settings import QueueSettings

LARGEST_BATCH = 10_000
LARGEST_BATCH_BYTES = 16 * 1024 * 1024
REQUEST_ID_WINDOW = 86_400.0
LONGEST_READER_AGE = 30 * 86_400.0
PREFETCHED = "prefetched"
"""The note of a lease whose handler has not begun: its end is no crash."""
SIGN_OF_LIFE = "alive-"
"""How the names of the files in a run folder begin that workers keep locked while they live."""


class Atomicity(StrEnum):
    """What one transaction can hold."""

    STORE = "store"
    PARTITION = "partition"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """What this store can promise, so that policies are checked before first use."""

    survives_restart: bool = False
    shared_between_processes: bool = False
    shared_between_hosts: bool = False
    ordered: bool = False
    wakes_waiters: bool = False
    transactional: Atomicity = Atomicity.NONE


class Put(NamedTuple):
    """A message to be stored. ``delay`` and ``ttl`` count from the transaction's ``now``."""

    queue: str
    body: bytes
    codec: str = "json"
    headers: bytes | None = None
    delay: float = 0.0
    priority: int = 0
    ordering_key: str | None = None
    ttl: float | None = None
    """How long it may wait; None leaves it to the queue's settings."""
    dedupe_key: str | None = None
    dedupe_window: float = 0.0
    fingerprint: int = 0
    """Of the value, to tell whether a taken key belongs to the same one."""
    conflict_is_error: bool = False
    request_id: str | None = None
    id: str | None = None
    """The id that the message had in the store it is copied from."""


class StoredMessage(NamedTuple):
    """A message as the store has it: bytes, and store time."""

    id: str
    queue: str
    body: bytes
    codec: str
    headers: bytes | None
    state: str
    attempts: int
    created_at: float
    available_at: float
    leased_until: float | None
    leased_by: str | None
    last_error: dict[str, Any] | None
    failed_at: float | None
    history: list[dict[str, Any]]
    dedupe_key: str | None
    priority: int
    ordering_key: str | None
    expires_at: float | None
    failures: int
    crashes: int
    token: int
    damaged: bool = False
    """Body and checksum do not agree: the body must not be used."""


class Fate(StrEnum):
    """What became of a put."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    DROPPED = "dropped"


class Enqueued(NamedTuple):
    """The answer to one put."""

    message: StoredMessage
    fate: Fate = Fate.STORED
    settings_version: int = 0
    delay: float = 0.0
    """How long a throttled producer should pause before its next put."""
    copies: tuple[StoredMessage, ...] = ()
    """What a topic stored, a message per subscriber."""


# ``_make`` is a function of Python's own, and every message of a batch feels it.
new_message: Callable[[tuple[Any, ...]], StoredMessage] = partial(tuple.__new__, StoredMessage)
new_enqueued: Callable[[tuple[Any, ...]], Enqueued] = partial(tuple.__new__, Enqueued)


class QueueIsFull(Exception):
    """The batch does not fit, and the queue's overflow is to block or to reject.

    A signal inside the library: users see ``queue.Full``.
    """

    def __init__(self, queue: str, overflow: str) -> None:
        super().__init__(f"queue {queue!r} is full")
        self.queue = queue
        self.overflow = overflow


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Lease up to ``limit`` messages of these queues, starting with the first of them.

    With a limit of 0 nothing is leased, but everything that is due in them happens.
    """

    queues: tuple[str, ...]
    limit: int = 1
    timeout: float = 30.0
    worker: str | None = None
    liveness: str | None = None
    """The worker's liveness name: the expiry of such a lease counts as a crash."""
    remove: bool = False
    """Remove instead of leasing: at most once."""
    codecs: tuple[str, ...] | None = None
    """The codecs that the caller can read; what has another becomes a dead letter."""
    prefetched: bool = False
    """The handlers do not begin yet: the leases get the note PREFETCHED, see ``extend``."""


@dataclass(frozen=True, slots=True)
class Settle:
    """End one lease: how, and what becomes durable with it."""

    receipt: Receipt
    settlement: Settlement
    records: tuple[RecordChange, ...] = ()
    puts: tuple[Put, ...] = ()
    """Follow-up messages; capacity never refuses them, that would repeat the handler."""


class Settled(StrEnum):
    """The answer to one Settle."""

    DONE = "done"
    STALE = "stale"
    CONFLICT = "conflict"


class LeaseAnswer(StrEnum):
    """The answer to an extension."""

    HELD = "held"
    LOST = "lost"
    CANCEL_ASKED = "cancel-asked"


class Cancelled(StrEnum):
    """The answer to a cancellation."""

    REMOVED = "removed"
    ASKED = "asked"
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        return self is not Cancelled.UNKNOWN


class JournalEvent(NamedTuple):
    """One transition. Closing events carry what is needed to tell wait and run times."""

    position: str
    at: float
    queue: str
    message_id: str | None
    kind: str
    from_state: str | None
    to_state: str | None
    n: int
    attempt: int | None
    worker: str | None
    by: str
    error_type: str | None
    error_text: str | None
    fingerprint: str | None
    enqueued_at: float | None
    leased_at: float | None
    waited: float | None
    ran: float | None
    body: bytes | None
    """The payload, where the queue's journal keeps payloads."""
    detail: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class JournalReader:
    """A consumer group: events after its position are kept for it, ``max_age`` seconds at most."""

    name: str
    position: str
    updated_at: float
    max_age: float


class Waiter(Protocol):
    """Somebody who waits for something ready, or for room; made by ``QueueStore.watch``.

    The order is: watch, probe, and while the probe finds nothing, wait and probe again; then close,
    in a ``finally``. What happens after ``watch`` or after the last ``wait`` is not missed, so one
    waiter serves a whole blocking call. What time alone changes wakes nobody: the timeout is the
    earliest of the caller's deadline, the next due time and one second, and the probe follows
    whatever the answer was. One thread or task uses it at a time.
    """

    def wait(self, timeout: float) -> bool:
        """Block until something may have changed; False when ``timeout`` seconds are over.

        True does not mean that the caller will find something: another may be faster. The store's
        ``close`` ends it at once, with True: the next probe raises StoreClosed.
        """

    async def wait_async(self, timeout: float) -> bool:
        """The same for a task: no thread waits, and the loop goes on.

        When the task is cancelled, what it was told is not lost: ``close`` tells the next one.
        """

    def close(self) -> None:
        """Wait no more, and tell the next one if this one was told and left something. Idempotent.

        Whoever was told has to close as soon as it has what it came for, before it works on it:
        others sleep until then. In a thread that runs an event loop it does not block.
        """


class QueueStore(Protocol):
    """Keeps messages. Time comes in as ``now``: a local store never reads the clock itself."""

    @property
    def capabilities(self) -> StoreCapabilities: ...

    @property
    def run_folder(self) -> Path | None:
        """Where the processes of this host that use the store leave signs of life.

        The store leaves files alone whose names begin with SIGN_OF_LIFE. None when it has no such
        place: then leases end by expiry alone.
        """

    def close(self) -> None:
        """Give up files and connections; later calls raise StoreClosed. Idempotent."""

    def open_clock(self, clock: Clock) -> float:
        """The offset from ``clock.steady()`` to store time, made once per boot.

        A new boot continues at the later of the wall clock and the last event, and its first
        opener frees the leases of the old boot.
        """

    # --- queues -------------------------------------------------------------------------------
    def configure(
        self, queue: str, changes: Mapping[str, Any], *, now: Now, by: str = "worker"
    ) -> tuple[QueueSettings, int]:
        """Write these settings where they differ; the settings in force and their version."""

    def settings(self, queue: str) -> tuple[QueueSettings, int] | None:
        """The settings in force, or None for a queue that was never used."""

    def queues(self) -> list[str]:
        """The names of all queues, in order."""

    # --- messages -----------------------------------------------------------------------------
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        """Store all or none; one answer each. Topics hand out to all their subscribers at once.

        QueueIsFull when the queue's overflow is to block or reject; InvalidMessage when the
        queue's ordering does not allow the priority or key.
        """

    def enqueue_with_records(
        self, puts: Sequence[Put], changes: Sequence[RecordChange], *, now: Now
    ) -> Sequence[Enqueued]:
        """As ``enqueue_many``, and these records change in the same transaction, or nothing does.

        RecordConflict if a record is unlike what is expected: so a producer that is started again,
        or twice, can know what it has put.
        """

    def lease(self, request: LeaseRequest, *, now: Now) -> Sequence[StoredMessage]:
        """Up to ``limit`` messages in delivery order, leased until now + timeout.

        Damaged messages become dead letters on the way and are never returned.
        """

    def ack_many(self, receipts: Sequence[Receipt], *, now: Now) -> list[bool]:
        """Remove the messages whose lease these receipts hold; one answer each, in order."""

    def release_many(
        self,
        receipts: Sequence[Receipt],
        *,
        delay: float = 0.0,
        error: Mapping[str, Any] | None = None,
        now: Now,
    ) -> list[bool]:
        """Deliver them again ``delay`` seconds from now, behind what is ready then.

        What was leased ahead, and is given back at once without an error, keeps its place.
        """

    def dead_letter_many(
        self, receipts: Sequence[Receipt], *, error: Mapping[str, Any] | None = None, now: Now
    ) -> list[bool]:
        """Take them out of delivery and keep them."""

    def extend(
        self, receipts: Sequence[Receipt], *, timeout: float, note: str | None = None, now: Now
    ) -> list[LeaseAnswer]:
        """Hold these leases until now + timeout; ``note`` is kept with the lease.

        The note PREFETCHED says that the handler has not begun: expiry is then no crash. It goes
        with the first extension that does not say so again; other notes stay until there is a
        new one.
        """

    def extend_of(self, liveness: str, *, timeout: float, now: Now) -> int:
        """Hold every lease of this liveness name until now + timeout at least; how many.

        For those who cannot know the receipts. Notes stay, and no lease becomes shorter.
        """

    def end_leases_of(self, liveness: str, running: Collection[str], *, now: Now) -> int:
        """The worker of this liveness name is dead: end all its leases now; how many.

        The messages whose ids are in ``running`` are charged with a crash, and are dead letters at
        their queue's crash limit. The others come back as if nobody had taken them but for their
        attempts. In slices: others get their turn in between.
        """

    def leased_under(
        self, liveness: str, queue: str, *, after: int = NEVER_LEASED, upto: int | None = None
    ) -> list[StoredMessage]:
        """The messages of this queue that are leased under this liveness name, by their tokens.

        Those whose token is greater than ``after`` and not above ``upto``, in that order. A lease
        whose time is over is among them until somebody ends it.
        """

    def settle(self, settle: Settle, *, now: Now) -> Settled:
        """End a lease and write its records and follow-ups in the same transaction, or nothing."""

    def settle_and_lease(
        self, settles: Sequence[Settle], request: LeaseRequest | None, *, now: Now
    ) -> tuple[list[Settled], Sequence[StoredMessage]]:
        """End these leases and take the next ones; a refused one does not touch its neighbours.

        A follow-up that no queue can take raises, and nothing of the call is done.
        """

    def cancel(self, queue: str, message_id: str, *, now: Now) -> Cancelled:
        """Remove a waiting message, or ask the holder of an inflight one to stop."""

    def read(self, queue: str, message_id: str) -> StoredMessage | None:
        """One message without leasing it, with its history."""

    def peek(self, queue: str, limit: int, *, now: Now) -> list[StoredMessage]:
        """The next messages in delivery order, without leasing them."""

    # --- counting -----------------------------------------------------------------------------
    def qsize(self, queue: str, *, now: Now) -> int:
        """Messages that a lease would find now."""

    def waiting(self, queue: str, *, now: Now) -> int:
        """What capacity counts: ready, delayed and held messages."""

    def stats(self, queue: str, *, now: Now) -> QueueStats:
        """Counts of every state, and per worker. Reads only."""

    def next_due(self, queues: Sequence[str]) -> float | None:
        """When time will next make something of these queues ready; None when nothing waits."""

    def record_worker_heartbeat(self, queue: str, worker_id: str, *, now: Now) -> None: ...

    # --- dead letters -------------------------------------------------------------------------
    def dead_letters(self, queue: str, *, limit: int | None = None) -> list[StoredMessage]:
        """Oldest first."""

    def dead_letter_ids(self, queue: str, *, limit: int | None = None) -> list[str]:
        """The ids of what ``dead_letters`` would list, without reading the messages themselves."""

    def requeue_dead_many(
        self, queue: str, message_ids: Sequence[str], *, delay: float = 0.0, now: Now
    ) -> list[bool]:
        """Deliver dead letters again with a fresh budget; False for what is not dead."""

    def count_dead_letters_older_than(self, queue: str, *, older_than: float, now: Now) -> int: ...

    def prune_dead_letters(self, queue: str, *, older_than: float, now: Now) -> int:
        """Remove dead letters that are at least this old, in slices; how many."""

    def purge(self, queue: str, *, now: Now) -> int:
        """Remove everything of the queue but its settings; how many messages that were."""

    # --- topics -------------------------------------------------------------------------------
    def subscribe(self, topic: str, subscriber: str, *, start: str = "now", now: Now) -> bool:
        """Hand out to ``topic.subscriber`` from now, "earliest" or a position; False if it was."""

    def unsubscribe(self, topic: str, subscriber: str, *, now: Now) -> bool:
        """Stop handing out to it. Its copies stay; what a cursor had not reached is let go."""

    def subscribers(self, topic: str) -> list[str]: ...

    # --- records ------------------------------------------------------------------------------
    def load_record(self, kind: str, key: str, *, now: Now) -> Record | None: ...

    def change_records(self, changes: Sequence[RecordChange], *, now: Now) -> list[int]:
        """Apply all or none; the new versions (0 for deleted). RecordConflict if one is unlike."""

    def scan_records(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, now: Now
    ) -> list[Record]:
        """Records of a kind in the order of their keys, after a key."""

    def prune_records(self, kind: str, *, now: Now) -> int:
        """Remove the expired ones; how many."""

    # --- journal ------------------------------------------------------------------------------
    def journal(
        self, queues: Sequence[str] | None = None, *, after: str | None = None, limit: int = 1000
    ) -> list[JournalEvent]:
        """Events in commit order, after a position. None starts with the oldest kept.

        JournalTrimmed when events after the position are gone; JournalForeign when the position
        is not of this store.
        """

    def journal_end(self) -> str:
        """The position of the newest event: reading after it gives what happens from now on."""

    def history(self, queue: str, message_id: str) -> list[JournalEvent]:
        """The life of one message, also of one that is gone, as far as the journal has it."""

    def register_reader(
        self,
        name: str,
        *,
        position: str | None = None,
        max_age: float = LONGEST_READER_AGE,
        missing_ok: bool = False,
        now: Now,
    ) -> JournalReader:
        """Keep events after ``position`` (default: the oldest kept) for this reader.

        JournalTrimmed when events after it are gone in any queue that has a journal; with
        ``missing_ok`` what is left of them is kept.
        """

    def commit_reader(self, name: str, position: str, *, now: Now) -> None: ...

    def drop_reader(self, name: str) -> bool: ...

    def readers(self) -> list[JournalReader]: ...

    # --- waiting ------------------------------------------------------------------------------
    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        """A waiter that is told when these queues may have something ready, or room.

        A queue that was never used may be watched too. It may read the database once.
        """
