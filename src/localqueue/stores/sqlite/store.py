"""The store contract on SQLite: each verb of the contract is one transaction of the runner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from localqueue.checks import check_key, check_seconds
from localqueue.clock import Clock, Now, read_now
from localqueue.errors import (
    ConfigurationError,
    InvalidArgument,
    StoreBusy,
    StoreCorrupt,
    StoreMissing,
    StoreReadOnly,
    WrongType,
)
from localqueue.message import NEVER_LEASED, QueueStats, Receipt
from localqueue.stores.protocol import (
    LONGEST_READER_AGE,
    Atomicity,
    Cancelled,
    Enqueued,
    JournalEvent,
    JournalReader,
    LeaseAnswer,
    LeaseRequest,
    Put,
    QueueStore,
    Settle,
    Settled,
    StoreCapabilities,
    StoredMessage,
    Waiter,
)
from localqueue.stores.records import Record, RecordChange
from localqueue.stores.settings import QueueSettings
from localqueue.stores.simple import SimpleVerbs
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.connection import SYNCHRONOUS
from localqueue.stores.sqlite.group_commit import GROWS, PLAIN, Manner
from localqueue.stores.sqlite.manners import EXTENDS, LEASES, SETTLES_AND_LEASES
from localqueue.stores.sqlite.runner import FileRunner, Runner
from localqueue.stores.sqlite.verbs import (
    boot,
    dead_letters,
    inspect,
    joined,
    journal,
    publish,
    purge,
    queues,
    records,
    settle,
    topics,
    waiting,
)
from localqueue.stores.sqlite.verbs import liveness as liveness_
from localqueue.stores.sqlite.verbs.leased_under import leased_under
from localqueue.stores.sqlite.verbs.liveness import Held
from localqueue.stores.sqlite.view import Transaction
from localqueue.stores.sqlite.wakeup import Wakeups, make_wakeups

if TYPE_CHECKING:
    from localqueue.stores.sqlite.operations.backup import BackupReport
    from localqueue.stores.sqlite.operations.check import CheckReport
    from localqueue.stores.sqlite.operations.salvage import SalvageReport
    from localqueue.stores.sqlite.operations.vacuum import VacuumReport


class SQLStore(SimpleVerbs):
    """The verbs over a runner: what they do is the same in a file and in memory."""

    capabilities: StoreCapabilities
    run_folder: Path | None = None

    def __init__(self, runner: Runner, wakeups: Wakeups) -> None:
        self._runner = runner
        self._wakeups = wakeups
        self._questions = _Questions(runner)
        self._awaitable: QueueStore | None = None

    def close(self) -> None:
        self._wakeups.close()
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def awaitable(self) -> QueueStore:
        """The same store for event loops: the answers of its verbs are to be awaited."""
        if self._awaitable is None:
            from localqueue.stores.sqlite.awaitable import make_awaitable

            self._awaitable = make_awaitable(self, self._runner, self._wakeups)
        return self._awaitable

    def open_clock(self, clock: Clock) -> float:
        return self._runner.write(
            lambda tx: boot.open_clock(tx, clock.boot_id(), clock.steady(), clock.wall()), 0.0
        )

    # --- queues -------------------------------------------------------------------------------
    def configure(
        self, queue: str, changes: Mapping[str, Any], *, now: Now, by: str = "worker"
    ) -> tuple[QueueSettings, int]:
        return self._runner.write(lambda tx: queues.configure(tx, queue, changes, by), now)

    def settings(self, queue: str) -> tuple[QueueSettings, int] | None:
        return self._runner.read(lambda view: queues.settings(view, queue))

    def queues(self) -> list[str]:
        return self._runner.read(queues.queue_names)

    # --- messages -----------------------------------------------------------------------------
    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        return self._runner.write(joined.Enqueue(puts), now, GROWS)

    def enqueue_with_records(
        self, puts: Sequence[Put], changes: Sequence[RecordChange], *, now: Now
    ) -> Sequence[Enqueued]:
        return self._runner.write(
            lambda tx: publish.enqueue_with_records(tx, puts, changes), now, GROWS
        )

    def lease(self, request: LeaseRequest, *, now: Now) -> Sequence[StoredMessage]:
        manner = PLAIN if request.remove else LEASES
        return self._runner.write(joined.Lease(request), now, manner)

    def ack_many(self, receipts: Sequence[Receipt], *, now: Now) -> list[bool]:
        return self._runner.write(joined.Ack(receipts), now)

    def release_many(
        self,
        receipts: Sequence[Receipt],
        *,
        delay: float = 0.0,
        error: Mapping[str, Any] | None = None,
        now: Now,
    ) -> list[bool]:
        return self._runner.write(lambda tx: settle.release_many(tx, receipts, delay, error), now)

    def dead_letter_many(
        self, receipts: Sequence[Receipt], *, error: Mapping[str, Any] | None = None, now: Now
    ) -> list[bool]:
        return self._runner.write(lambda tx: settle.dead_letter_many(tx, receipts, error), now)

    def extend(
        self, receipts: Sequence[Receipt], *, timeout: float, note: str | None = None, now: Now
    ) -> list[LeaseAnswer]:
        return self._runner.write(
            lambda tx: settle.extend(tx, receipts, timeout, note), now, EXTENDS
        )

    def extend_of(self, liveness: str, *, timeout: float, now: Now) -> int:
        def extend(leases: Sequence[Held], tx: Transaction) -> int:
            return liveness_.extend_slice(tx, leases, timeout)

        return self._slice_by_slice(liveness, extend, now, EXTENDS)

    def end_leases_of(self, liveness: str, running: Collection[str], *, now: Now) -> int:
        charged = frozenset(running)

        def end(leases: Sequence[Held], tx: Transaction) -> int:
            return liveness_.end_slice(tx, leases, charged)

        return self._slice_by_slice(liveness, end, now, PLAIN)

    def _slice_by_slice(
        self,
        liveness: str,
        change: Callable[[Sequence[Held], Transaction], int],
        now: Now,
        manner: Manner,
    ) -> int:
        """Do it with all leases of this name; how many that were."""
        leases = self._runner.read(lambda view: liveness_.leases_under(view, liveness))
        changed = 0
        for part in liveness_.slices(leases):
            changed += self._runner.write(partial(change, part), now, manner)
        return changed

    def leased_under(
        self, liveness: str, queue: str, *, after: int = NEVER_LEASED, upto: int | None = None
    ) -> list[StoredMessage]:
        return self._runner.read(lambda view: leased_under(view, liveness, queue, after, upto))

    def settle(self, settle_: Settle, *, now: Now) -> Settled:
        return self._runner.write(lambda tx: settle.settle(tx, settle_), now)

    def settle_and_lease(
        self, settles: Sequence[Settle], request: LeaseRequest | None, *, now: Now
    ) -> tuple[list[Settled], Sequence[StoredMessage]]:
        manner = PLAIN if request is None or request.remove else SETTLES_AND_LEASES
        return self._runner.write(joined.SettleAndLease(settles, request), now, manner)

    def cancel(self, queue: str, message_id: str, *, now: Now) -> Cancelled:
        return self._runner.write(lambda tx: settle.cancel(tx, queue, message_id), now)

    def read(self, queue: str, message_id: str) -> StoredMessage | None:
        return self._runner.read(lambda view: inspect.read(view, queue, message_id))

    def peek(self, queue: str, limit: int, *, now: Now) -> list[StoredMessage]:
        return self._runner.read(lambda view: inspect.peek(view, queue, limit, read_now(now)))

    # --- counting -----------------------------------------------------------------------------
    def qsize(self, queue: str, *, now: Now) -> int:
        return self._runner.read(lambda view: inspect.qsize(view, queue, read_now(now)))

    def waiting(self, queue: str, *, now: Now) -> int:
        return self._runner.read(lambda view: inspect.waiting(view, queue, read_now(now)))

    def stats(self, queue: str, *, now: Now) -> QueueStats:
        return self._runner.read(lambda view: inspect.stats(view, queue, read_now(now)))

    def next_due(self, queues: Sequence[str]) -> float | None:
        return self._runner.read(lambda view: inspect.next_due(view, queues))

    def record_worker_heartbeat(self, queue: str, worker_id: str, *, now: Now) -> None:
        self._runner.write(lambda tx: queues.see_worker(tx, queue, worker_id), now, EXTENDS)

    # --- dead letters -------------------------------------------------------------------------
    def dead_letters(self, queue: str, *, limit: int | None = None) -> list[StoredMessage]:
        return self._runner.read(lambda view: dead_letters.dead_letters(view, queue, limit))

    def dead_letter_ids(self, queue: str, *, limit: int | None = None) -> list[str]:
        return self._runner.read(lambda view: dead_letters.dead_letter_ids(view, queue, limit))

    def requeue_dead_many(
        self, queue: str, message_ids: Sequence[str], *, delay: float = 0.0, now: Now
    ) -> list[bool]:
        return self._runner.write(
            lambda tx: dead_letters.requeue_dead_many(tx, queue, message_ids, delay), now
        )

    def count_dead_letters_older_than(self, queue: str, *, older_than: float, now: Now) -> int:
        return self._runner.read(
            lambda view: dead_letters.count_dead_letters_older_than(
                view, queue, older_than, read_now(now)
            )
        )

    def prune_dead_letters(self, queue: str, *, older_than: float, now: Now) -> int:
        pruned = 0
        while True:
            n = self._runner.write(lambda tx: dead_letters.prune_slice(tx, queue, older_than), now)
            pruned += n
            if n < dead_letters.SLICE:
                return pruned

    def purge(self, queue: str, *, now: Now | None = None) -> int:
        when = self._time().now if now is None else now
        return self._runner.write(lambda tx: purge.purge(tx, queue), when)

    # --- topics -------------------------------------------------------------------------------
    def subscribe(self, topic: str, subscriber: str, *, start: str = "now", now: Now) -> bool:
        return self._runner.write(lambda tx: topics.subscribe(tx, topic, subscriber, start), now)

    def unsubscribe(self, topic: str, subscriber: str, *, now: Now) -> bool:
        return self._runner.write(lambda tx: topics.unsubscribe(tx, topic, subscriber), now)

    def subscribers(self, topic: str) -> list[str]:
        return self._runner.read(lambda view: topics.subscribers(view, topic))

    # --- records ------------------------------------------------------------------------------
    def load_record(self, kind: str, key: str, *, now: Now) -> Record | None:
        return self._runner.read(lambda view: records.load_record(view, kind, key, read_now(now)))

    def change_records(self, changes: Sequence[RecordChange], *, now: Now) -> list[int]:
        return self._runner.write(lambda tx: records.change_records(tx, changes), now, GROWS)

    def scan_records(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, now: Now
    ) -> list[Record]:
        return self._runner.read(
            lambda view: records.scan_records(view, kind, prefix, after, limit, read_now(now))
        )

    def prune_records(self, kind: str, *, now: Now) -> int:
        pruned = 0
        while True:
            n = self._runner.write(lambda tx: records.prune_records(tx, kind), now)
            pruned += n
            if n < records.SLICE:
                return pruned

    # --- journal ------------------------------------------------------------------------------
    def journal(
        self, queues: Sequence[str] | None = None, *, after: str | None = None, limit: int = 1000
    ) -> list[JournalEvent]:
        return self._runner.read(
            lambda view: journal.journal(view, queues, after, limit), lasting=True
        )

    def journal_end(self) -> str:
        return self._runner.read(journal.journal_end, lasting=True)

    def history(self, queue: str, message_id: str) -> list[JournalEvent]:
        return self._runner.read(lambda view: journal.history(view, queue, message_id))

    def register_reader(
        self,
        name: str,
        *,
        position: str | None = None,
        max_age: float = LONGEST_READER_AGE,
        missing_ok: bool = False,
        now: Now,
    ) -> JournalReader:
        check_key("reader name", name)
        check_seconds("max_age", max_age, zero=False)
        return self._runner.write(
            lambda tx: journal.register_reader(tx, name, position, max_age, missing_ok), now
        )

    def commit_reader(self, name: str, position: str, *, now: Now) -> None:
        self._runner.write(lambda tx: journal.commit_reader(tx, name, position), now)

    def drop_reader(self, name: str) -> bool:
        return self._runner.write(lambda tx: journal.drop_reader(tx, name), 0.0)

    def readers(self) -> list[JournalReader]:
        return self._runner.read(journal.readers)

    # --- waiting ------------------------------------------------------------------------------
    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        return self._wakeups.watch(list(queues), what, self._questions)


class _Questions:
    """What waiting asks. A queue keeps its number, so each is asked for once."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._numbers: dict[str, int] = {}

    def numbers(self, queues: Sequence[str]) -> dict[str, int]:
        unknown = [name for name in queues if name not in self._numbers]
        if unknown:
            self._numbers |= self._runner.read(lambda view: waiting.numbers(view, unknown))
        return {name: self._numbers[name] for name in queues if name in self._numbers}

    def is_left(self, what: Literal["ready", "room"], number: int) -> bool:
        question = waiting.anything_ready if what == "ready" else waiting.any_room
        return self._runner.read(lambda view: question(view, number))


class SQLiteQueueStore(SQLStore):
    """Messages in one SQLite file, shared by the threads and processes of one host.

    ``durability="full"`` answers when the message is on stable storage; ``"relaxed"`` survives the
    death of the process but may lose the newest answers to a power cut. The file is opened, and
    made if there is none, with the first call. ``timeout`` is how long a call waits for other
    writers before it raises StoreBusy.
    """

    capabilities = StoreCapabilities(
        survives_restart=True,
        shared_between_processes=True,
        ordered=True,
        wakes_waiters=True,
        transactional=Atomicity.STORE,
    )

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Literal["full", "relaxed"] = "full",
        timeout: float = 15.0,
        network_file_system: bool = False,
    ) -> None:
        if durability not in SYNCHRONOUS:
            raise ConfigurationError(f'durability must be "full" or "relaxed", not {durability!r}')
        if not isinstance(path, (str, Path)):
            raise WrongType(f"path must be a string or a Path, not {type(path).__name__}")
        if str(path) in ("", ".", ":memory:"):
            raise InvalidArgument(
                f"{str(path)!r} names no file; a store in memory is MemoryQueueStore()"
            )
        if "\0" in str(path):
            raise InvalidArgument(f"path cannot contain a NUL: {path!r}")
        self.path = Path(path).expanduser().absolute()
        self.durability = durability
        self.timeout = check_seconds("timeout", timeout)
        self._network = network_file_system
        companions = Companions(self.path)
        self.run_folder = companions.folder
        wakeups = make_wakeups(companions)
        self._file = FileRunner(
            companions,
            durability=durability,
            timeout=timeout,
            wakeups=wakeups,
            network=network_file_system,
        )
        super().__init__(self._file, wakeups)

    # --- operations: each in operations/, loaded when it is asked for ----------------------------
    def backup(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> BackupReport:
        """Copy the store as it is now to a new file, while others go on reading and writing.

        The copy is one whole file, checked before it gets its name; if anything fails, or Ctrl-C is
        pressed, nothing is left. ``on_progress`` is told how many pages are done, of how many. A
        store that is opened from it goes on with ids of its own, and all its leases are over.
        """
        from localqueue.stores.sqlite.operations.backup import backup

        self._check_it_exists()
        # Opened, recognised and migrated as by any other call.
        self.queues()
        return backup(
            self.path, path, timeout=self.timeout, overwrite=overwrite, on_progress=on_progress
        )

    def check(self, *, on_progress: Callable[[int, int], object] | None = None) -> CheckReport:
        """Look for anything that is wrong in the file: damage, and rows that contradict each other.

        It only reads, one state of the file, beside those who write. ``on_progress`` is told how
        many rules are checked, of how many. StoreCorrupt when nothing at all can be read.
        """
        from localqueue.stores.sqlite.operations.check import check

        self._check_it_exists()
        # Opened as by any other call; what it trips over is for the report.
        with contextlib.suppress(StoreCorrupt):
            self.queues()
        return check(self.path, timeout=self.timeout, on_progress=on_progress)

    def salvage(self, path: str | Path, *, overwrite: bool = False) -> SalvageReport:
        """Save what is sound in this file, which may be damaged, into a new one at ``path``.

        The file itself is only read, and not opened for that, so it works where every other call
        raises StoreCorrupt. Nobody may write to it meanwhile.
        """
        from localqueue.stores.sqlite.operations.salvage import salvage

        self._check_it_exists()
        return salvage(self.path, path, overwrite=overwrite)

    def vacuum(self) -> VacuumReport:
        """Give space that is no longer used back to the system.

        The file is written anew, and nobody else can write meanwhile; for a moment it needs twice
        its size. StoreFull when there is no room for that: then everything is as before.
        """
        from localqueue.stores.sqlite.operations.vacuum import vacuum

        self._check_it_exists()
        return vacuum(self.path, self._file)

    def diagnostics(self) -> dict[str, Any]:
        """Versions, sizes, settings, counts and warnings; the value can be written as JSON."""
        from localqueue.stores.sqlite.operations.daybook import count_unposted
        from localqueue.stores.sqlite.operations.diagnostics import Facts, diagnose, read_pragmas

        self._check_it_exists()
        unposted = count_unposted(self.path, self.timeout)

        def stats(now: float) -> dict[str, QueueStats]:
            return {name: self.stats(name, now=now) for name in self.queues()}

        try:
            pragmas = self._file.exclusively(read_pragmas)
        except StoreBusy:
            pragmas = None
        readers, figures = self.readers(), self._file.figures()
        return diagnose(
            Facts(
                self.path, self.durability, self.timeout, stats, readers, figures, unposted, pragmas
            )
        )

    def _check_it_exists(self) -> None:
        """Looking after a file makes none: a path that was misspelt must not look healthy."""
        if self._file.is_unused():
            try:
                size = self.path.stat().st_size
            except FileNotFoundError:
                raise StoreMissing(f"{self.path}: there is no such file") from None
            except OSError as error:
                raise StoreReadOnly(f"{self.path}: it cannot be read here ({error})") from error
            if size == 0:
                raise StoreMissing(f"{self.path}: the file is empty")

    def __reduce__(self) -> tuple[Any, ...]:
        # To another process: it opens the file for itself.
        rest: dict[str, Any] = {"durability": self.durability, "timeout": self.timeout}
        if self._network:
            rest["network_file_system"] = True
        return partial(SQLiteQueueStore, self.path, **rest), ()

    def __repr__(self) -> str:
        return f"SQLiteQueueStore({str(self.path)!r}, durability={self.durability!r})"
