"""Signs of life: what a killed worker held comes back at once, and only what it ran is charged."""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from localqueue.clock import SYSTEM_CLOCK, Now, StoreTime
from localqueue.errors import StoreBusy
from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers import Worker
from localqueue.workers.liveness import Liveness, bury_the_dead, new_name
from tests.unit.workers.processes import children_of, holder

RUNS_THE_SECOND_OF_FIVE = """
    held = take(5, prefetched=True)
    liveness.begin(0, held[0].id)
    liveness.begin(0, held[1].id)
    liveness.begin(1, held[2].id)
    liveness.end(1)
    say("holds", len(held))
    sys.stdin.readline()
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteQueueStore]:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        yield store


@pytest.fixture
def when(store: SQLiteQueueStore) -> StoreTime:
    return StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK))


def put(store: SQLiteQueueStore, when: StoreTime, n: int = 5) -> None:
    store.enqueue_many([Put("jobs", b"%d" % number) for number in range(n)], now=when.now)


def bury(store: SQLiteQueueStore, when: StoreTime) -> int:
    return bury_the_dead(store, store.run_folder, when.now)


def crashes(store: SQLiteQueueStore, when: StoreTime) -> dict[bytes, int]:
    """What can be had now, and how often its worker died."""
    leased = store.lease(LeaseRequest(("jobs",), 100), now=when.now)
    return {message.body: message.crashes for message in leased}


def signs(store: SQLiteQueueStore) -> list[str]:
    assert store.run_folder is not None
    return [path.name for path in store.run_folder.glob("alive-*")]


def test_the_leases_of_a_killed_worker_come_back_at_once_and_only_what_it_ran_is_charged(
    store: SQLiteQueueStore, when: StoreTime, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, when)
    with holder(store.path, RUNS_THE_SECOND_OF_FIVE) as worker:
        worker.heard("holds", "5")
        assert bury(store, when) == 0
        assert crashes(store, when) == {}

        worker.kill()

        assert bury(store, when) == 5
        assert crashes(store, when) == {b"0": 0, b"1": 1, b"2": 0, b"3": 0, b"4": 0}
    assert signs(store) == []
    assert bury(store, when) == 0
    (told,) = caplog.records
    assert "has died: 5 messages" in told.message


def test_what_a_dead_worker_ran_is_charged_though_its_lease_expired_before_anybody_looked(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    put(store, when)
    with holder(store.path, RUNS_THE_SECOND_OF_FIVE, lease=30.0) as worker:
        worker.heard("holds", "5")
        worker.kill()

        leased = store.lease(LeaseRequest(("jobs",), 100), now=when.now() + 60)

    found = {message.body: message.crashes for message in leased}
    assert found == {b"0": 0, b"1": 1, b"2": 0, b"3": 0, b"4": 0}
    assert bury(store, when) == 0
    assert signs(store) == []


def test_a_worker_that_ends_with_leases_leaves_its_sign_and_nobody_is_charged(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    put(store, when)
    alive = Liveness(store.run_folder, slots=2)
    held = store.lease(LeaseRequest(("jobs",), 5, liveness=alive.name), now=when.now)
    alive.begin(1, held[0].id)

    alive.close(keep=True)

    assert signs(store) == [f"alive-{alive.name}"]
    assert bury(store, when) == 5
    assert set(crashes(store, when).values()) == {0}
    assert signs(store) == []


def test_a_worker_buries_the_dead_before_it_leases(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    queue = PersistentQueue[str]("jobs", store=store)
    queue.put("left by the dead")
    alive = Liveness(store.run_folder)
    store.lease(LeaseRequest(("jobs",), 1, liveness=alive.name, prefetched=True), now=when.now)
    del alive
    queue.put("later")
    seen: list[str] = []

    Worker(queue, seen.append).run(until_empty=True)

    assert seen == ["left by the dead", "later"]


def test_a_sign_that_cannot_be_read_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    (tmp_path / "alive-a-folder").mkdir()
    (tmp_path / "alive-a-loop").symlink_to(tmp_path / "alive-a-loop")
    alive = Liveness(tmp_path)
    alive.begin(0, "m")
    del alive

    assert bury_the_dead(recorder, tmp_path, 0.0) == 7
    assert bury_the_dead(recorder, tmp_path, 0.0) == 0

    assert recorder.running == {"m"}
    complaints = [record for record in caplog.records if "cannot be read" in record.message]
    assert len(complaints) == 2, "each is complained of once"


def test_a_sign_that_is_torn_charges_nobody(tmp_path: Path) -> None:
    recorder = Recorder()
    (tmp_path / "alive-torn").write_bytes(bytes(64) + b"\x05" + b"\xff" * 20)

    assert bury_the_dead(recorder, tmp_path, 0.0) == 7
    assert recorder.running is not None
    assert "m" not in recorder.running
    assert list(tmp_path.iterdir()) == []


def test_a_worker_without_a_free_descriptor_looks_for_the_dead_later(tmp_path: Path) -> None:
    recorder = Recorder()
    alive = Liveness(tmp_path)
    alive.begin(0, "m")
    del alive
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert bury_the_dead(recorder, tmp_path, 0.0) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert bury_the_dead(recorder, tmp_path, 0.0) == 7


def test_a_sign_of_the_dead_outlives_everybody_until_it_is_read(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    put(store, when)
    store.close()
    with holder(store.path, RUNS_THE_SECOND_OF_FIVE) as worker:
        worker.heard("holds", "5")
        worker.kill()
    with SQLiteQueueStore(store.path) as passer_by:
        passer_by.queues()
    assert len(signs(store)) == 1

    with SQLiteQueueStore(store.path) as heir:
        assert bury(heir, when) == 5
        assert crashes(heir, when)[b"1"] == 1
    assert list(store.path.parent.iterdir()) == [store.path]


def test_a_child_that_a_worker_forked_does_not_keep_its_leases(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    put(store, when)
    forks = """
        held = take(5)
        liveness.begin(0, held[0].id)
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            os.write(write_end, b".")
            time.sleep(600)
        os.read(read_end, 1)
        say("forked", os.getpid())
        sys.stdin.readline()
    """
    with holder(store.path, forks) as worker:
        worker.heard("forked", str(worker.pid))
        orphans = children_of(worker.pid)
        worker.kill()
        try:
            assert bury(store, when) == 5
        finally:
            for orphan in orphans:
                os.kill(orphan, 9)
    assert orphans


def test_a_living_worker_is_left_alone_also_by_its_own_process(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    put(store, when)
    with Liveness(store.run_folder) as alive:
        request = LeaseRequest(("jobs",), 5, liveness=alive.name)
        assert len(store.lease(request, now=when.now)) == 5

        assert bury(store, when) == 0
        assert signs(store) == [f"alive-{alive.name}"]
    assert signs(store) == []


def test_a_worker_that_is_forgotten_is_dead(store: SQLiteQueueStore, when: StoreTime) -> None:
    put(store, when)
    alive = Liveness(store.run_folder)
    held = store.lease(LeaseRequest(("jobs",), 5, liveness=alive.name), now=when.now)
    alive.begin(0, held[3].id)
    del alive

    assert bury(store, when) == 5
    assert crashes(store, when)[b"3"] == 1


def test_a_worker_that_just_begins_is_not_taken_for_dead(
    store: SQLiteQueueStore, when: StoreTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, looks = os.write, []

    def write_and_be_looked_at(file: int, content: bytes) -> int:
        """Somebody looks when the file is there and not locked yet."""
        written = write(file, content)
        looks.append(bury(store, when))
        return written

    monkeypatch.setattr(os, "write", write_and_be_looked_at)
    with Liveness(store.run_folder) as alive:
        monkeypatch.undo()
        assert looks == [0]
        assert signs(store) == [f"alive-{alive.name}"]


def test_the_folder_may_come_and_go_while_signs_are_made(tmp_path: Path) -> None:
    folder = tmp_path / "queue.sqlite3-run"

    with Liveness(folder) as alive:
        assert folder.is_dir()
        assert alive.path is not None
        assert alive.path.stat().st_mode & 0o777 == 0o600
    assert not folder.exists()


@pytest.mark.parametrize("where", ["memory", "no folder"])
def test_where_there_is_no_folder_everything_else_is_the_same(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    folder = MemoryQueueStore().run_folder if where == "memory" else tmp_path / "file" / "run"

    with Liveness(folder, slots=2) as alive:
        assert alive.path is None
        alive.begin(1, "m")
        alive.end(1)
        alive.beat()
    assert bury_the_dead(MemoryQueueStore(), None, 0.0) == 0


def test_names_are_never_given_twice() -> None:
    assert new_name() != new_name()
    assert str(os.getpid()) in new_name()


def test_a_handler_that_outlives_its_worker_can_still_say_that_it_ended(tmp_path: Path) -> None:
    alive = Liveness(tmp_path / "run")
    alive.begin(0, "m")
    alive.close()
    alive.end(0)
    alive.close()

    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("identifier", "charged"),
    [("m" * 255, {"m" * 255}), ("ü" * 127, {"ü" * 127}), ("m" * 256, set()), ("a", {"a"})],
)
def test_an_id_is_read_as_it_was_written(
    tmp_path: Path, identifier: str, charged: set[str]
) -> None:
    ended = Recorder()
    alive = Liveness(tmp_path, slots=3)
    alive.begin(2, "something longer than the next")
    alive.begin(2, identifier)
    del alive

    bury_the_dead(ended, tmp_path, 0.0)

    assert ended.running == charged


def test_when_the_store_cannot_end_the_leases_the_next_look_does(tmp_path: Path) -> None:
    recorder = Recorder(StoreBusy("busy"))
    alive = Liveness(tmp_path)
    alive.begin(0, "m")
    del alive

    with pytest.raises(StoreBusy):
        bury_the_dead(recorder, tmp_path, 0.0)
    assert bury_the_dead(recorder, tmp_path, 0.0) == 7
    assert recorder.running == {"m"}
    assert list(tmp_path.iterdir()) == []


class Recorder(MemoryQueueStore):
    """Keeps what it was told to end."""

    def __init__(self, *troubles: Exception) -> None:
        super().__init__()
        self.troubles = list(troubles)
        self.running: Collection[str] | None = None

    def end_leases_of(self, liveness: str, running: Collection[str], *, now: Now) -> int:
        if self.troubles:
            raise self.troubles.pop()
        self.running = running
        return 7
