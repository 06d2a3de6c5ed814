"""The lock between processes: in turn, in time, and never left behind."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from localqueue.errors import StoreBusy
from localqueue.stores.sqlite.turnstile import (
    DISK_FULL,
    SYNC_FAILED,
    Turnstile,
    tell_of_waiters,
)
from tests.unit.stores.engine.phrases import SOON, make_store, put, until


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[list[Turnstile]]:
    """As three processes have it: flock does not care whose descriptors they are."""
    made = [Turnstile(tmp_path / "lock", tmp_path / "turn") for _ in range(3)]
    yield made
    for lock in made:
        lock.close()


def soon() -> float:
    return time.monotonic() + SOON


def test_one_at_a_time(locks: list[Turnstile]) -> None:
    locks[0].acquire(soon())

    with pytest.raises(StoreBusy, match="until the timeout"):
        locks[1].acquire(time.monotonic() + 0.05)

    locks[0].release()
    locks[1].acquire(soon())
    locks[1].release()


def test_a_lock_that_comes_too_late_is_let_go_at_once(locks: list[Turnstile]) -> None:
    locks[0].acquire(soon())
    with pytest.raises(StoreBusy):
        locks[1].acquire(time.monotonic() + 0.02)
    locks[0].release()

    locks[2].acquire(soon())
    locks[2].release()


def test_one_that_was_late_once_is_in_time_the_next_time(locks: list[Turnstile]) -> None:
    locks[0].acquire(soon())
    with pytest.raises(StoreBusy):
        locks[1].acquire(time.monotonic() + 0.02)
    threading.Timer(0.02, locks[0].release).start()

    locks[1].acquire(soon())

    with pytest.raises(StoreBusy):
        locks[2].acquire(time.monotonic() + 0.02)
    locks[1].release()


def test_who_waits_is_not_overtaken_by_who_had_its_turn(
    locks: list[Turnstile], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without its slice, in which it may come back without queueing.
    monkeypatch.setattr("localqueue.stores.sqlite.turnstile.SLICE", -1.0)
    order: list[str] = []

    def wait() -> None:
        locks[1].acquire(soon())
        order.append("one who waited")
        locks[1].release()

    locks[0].acquire(soon())
    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: locks[1]._queueing is not None and is_taken(locks[2]._turn))
    locks[0].release()
    locks[0].acquire(soon())
    order.append("one who had it")
    locks[0].release()
    thread.join(SOON)

    assert order == ["one who waited", "one who had it"]


def test_marks_are_seen_by_the_next_holder(locks: list[Turnstile]) -> None:
    assert locks[1].marks() == b""

    locks[0].mark(DISK_FULL, True)

    assert locks[1].marks()[DISK_FULL]
    assert not locks[1].marks()[SYNC_FAILED]
    locks[1].mark(DISK_FULL, False)
    assert not any(locks[0].marks())


def test_closing_while_the_lock_is_waited_for_leaves_nothing_held(
    tmp_path: Path, locks: list[Turnstile]
) -> None:
    locks[0].acquire(soon())
    leaving = Turnstile(tmp_path / "lock", tmp_path / "turn")
    with pytest.raises(StoreBusy):
        leaving.acquire(time.monotonic() + 0.02)
    leaving.close()
    locks[0].release()

    locks[1].acquire(soon())
    locks[1].release()


def test_descriptors_are_closed(tmp_path: Path) -> None:
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(3):
        lock = Turnstile(tmp_path / "lock", tmp_path / "turn")
        lock.acquire(soon())
        lock.release()
        lock.close()

    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_lock_that_comes_late_is_not_let_go_under_one_who_holds_it(
    tmp_path: Path, locks: list[Turnstile]
) -> None:
    for _ in range(20):
        once_late = Turnstile(tmp_path / "lock", tmp_path / "turn")
        locks[0].acquire(soon())
        with pytest.raises(StoreBusy):
            once_late.acquire(time.monotonic() + 0.005)
        locks[0].release()

        once_late.acquire(soon())

        until(partial(is_idle, once_late))
        assert is_taken(locks[2]._lock)
        once_late.release()
        once_late.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_is_made_while_the_lock_is_waited_for_does_not_keep_it(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path, timeout=0.05)
    stopped, third = (os.open(tmp_path / "queue.sqlite3-run" / "lock", os.O_RDWR) for _ in "12")
    fcntl.flock(stopped, fcntl.LOCK_EX)
    with pytest.raises(StoreBusy):
        put(store)
    end, lives = os.pipe()
    child = os.fork()
    if child == 0:
        for descriptor in (stopped, third, lives):
            os.close(descriptor)
        os.read(end, 1)
        os._exit(0)

    fcntl.flock(stopped, fcntl.LOCK_UN)

    until(lambda: not is_taken(third))
    os.close(lives)
    os.waitpid(child, 0)
    for descriptor in (stopped, third, end):
        os.close(descriptor)
    put(store)
    store.close()


def is_idle(lock: Turnstile) -> bool:
    """Whether the thread that waits for it has nothing left to let go."""
    return lock._queueing is not None and not lock._queueing.is_waiting()


def is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def test_a_file_of_locks_that_was_made_before_somebody_waited_for_it_hears_of_it(
    tmp_path: Path,
) -> None:
    """Also one that is shorter, of an earlier release that still has it open."""
    files = tmp_path / "lock", tmp_path / "turn"
    files[0].write_bytes(bytes(10))

    lock = Turnstile(*files)
    assert not lock.is_waited_for()
    tell_of_waiters(files[0])
    later = Turnstile(*files)

    assert (lock.is_waited_for(), later.is_waited_for()) == (True, True)
    assert lock.marks() == b""
    for each in (lock, later):
        each.close()


def test_one_who_waits_before_the_file_of_locks_is_there_is_told(tmp_path: Path) -> None:
    files = tmp_path / "lock", tmp_path / "turn"
    tell_of_waiters(files[0])

    lock = Turnstile(*files)

    assert lock.is_waited_for()
    assert lock.marks() == b""
    lock.close()
