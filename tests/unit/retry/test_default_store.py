"""Where attempts are recorded when nobody says where."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tenacity import wait_none

from localqueue.retry import (
    AttemptStore,
    MemoryAttemptStore,
    PersistentRetrying,
    RetryRecord,
    SQLiteAttemptStore,
    close_default_store,
    configure_default_store,
    configure_default_store_factory,
)
from localqueue.retry.default_store import default_store, make_default_store


@pytest.fixture(autouse=True)
def as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield
    configure_default_store(None)
    configure_default_store_factory(make_default_store)


class Closable(MemoryAttemptStore):
    closed = False

    def close(self) -> None:
        self.closed = True


def in_a_thread() -> AttemptStore:
    found: list[AttemptStore] = []
    thread = threading.Thread(target=lambda: found.append(default_store()))
    thread.start()
    thread.join()
    return found[0]


def test_attempts_lie_in_a_file_beside_the_queues(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        PersistentRetrying(key="a", max_tries=2, wait=wait_none())(fail)
    close_default_store()

    with SQLiteAttemptStore(tmp_path / "localqueue" / "retries.sqlite3") as store:
        record = store.load("a")
    assert record is not None
    assert (record.attempts, record.exhausted) == (2, True)


def test_a_given_store_serves_all_threads_until_it_is_taken_back() -> None:
    given = MemoryAttemptStore()
    configure_default_store(given)
    given.save("a", RetryRecord(1, 5.0))

    assert default_store() is given
    assert in_a_thread() is given
    assert PersistentRetrying().get_record("a") == RetryRecord(1, 5.0)
    configure_default_store(None)
    assert default_store() is not given


def test_each_thread_gets_a_store_of_its_own_from_the_factory() -> None:
    configure_default_store_factory(Closable)

    here = default_store()

    assert isinstance(here, Closable)
    assert default_store() is here
    assert in_a_thread() is not here


def test_closing_is_for_this_thread_and_the_next_use_makes_a_new_store() -> None:
    configure_default_store_factory(Closable)
    here = default_store()
    assert isinstance(here, Closable)

    close_default_store()

    assert here.closed
    assert default_store() is not here


def test_stores_of_other_threads_can_be_closed_too() -> None:
    configure_default_store_factory(Closable)
    made, may_end = threading.Event(), threading.Event()
    there: list[AttemptStore] = []

    def hold() -> None:
        there.append(default_store())
        made.set()
        may_end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    made.wait()
    (other,) = there
    assert isinstance(other, Closable)

    close_default_store()
    assert not other.closed
    close_default_store(all_threads=True)

    assert other.closed
    may_end.set()
    thread.join()


def test_stores_of_threads_that_ended_are_not_left_open() -> None:
    configure_default_store_factory(Closable)
    ended = in_a_thread()
    assert isinstance(ended, Closable)

    in_a_thread()

    assert ended.closed


def test_a_store_that_was_given_is_not_closed() -> None:
    given = Closable()
    configure_default_store(given)

    close_default_store(all_threads=True)

    assert not given.closed
    assert default_store() is given


def test_a_factory_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError):
        configure_default_store_factory("factory")  # type: ignore[arg-type]
