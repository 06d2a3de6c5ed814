"""A process that is stopped with SIGSTOP while it holds the lock of the file, or waits for it.

Proven: callers of other processes get StoreBusy within their timeout, in all their threads; who
only reads is not held up, unless the stopped one has noted something that has to be posted first;
and all go on when the stopped one does. A process that is stopped while it waits for the disk holds
up nobody.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from localqueue.errors import StoreBusy
from tests.faults.holders import TIMEOUT, open_queue, stopped
from tests.faults.nursery import Child

GRACE = 1.5
"""How late the answer may come on a machine that has other things to do."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "queue.sqlite3"
    queue = open_queue(str(path))
    queue.put_many(range(20))
    queue.store.close()
    return path


class Caller(Child):
    """A process that has the queue open, and calls when it is told to."""

    def __init__(
        self, path: Path, threads: int = 1, verbs: int = 3, defect: str | None = None
    ) -> None:
        super().__init__("holders:call", str(path), threads, verbs, defect)
        assert self.hear() == "open"

    def calls(self) -> list[tuple[str, float]]:
        """What came of its calls, and how long each of them took."""
        self.tell()
        answers: list[tuple[str, float]] = self.hear()
        assert self.hear() == "open"
        return answers


def check_busy(answers: list[tuple[str, float]]) -> None:
    for outcome, seconds in answers:
        assert outcome == "StoreBusy"
        assert seconds < TIMEOUT + GRACE, f"the answer came after {seconds:.1f} s"


def check_done(answers: list[tuple[str, float]]) -> None:
    assert {outcome for outcome, _ in answers} == {"done"}


@pytest.mark.parametrize("threads", [1, 8])
def test_callers_are_told_in_time_that_the_store_is_busy_while_a_holder_is_stopped(
    path: Path, threads: int
) -> None:
    with Caller(path, threads) as caller:
        with stopped("stop_in_transaction", path):
            meanwhile = caller.calls()
        afterwards = caller.calls()

    assert len(meanwhile) == 3 * threads
    check_busy(meanwhile)
    check_done(afterwards)


def test_callers_are_told_in_time_while_the_next_in_line_is_stopped(path: Path) -> None:
    with Caller(path) as caller, Child("holders:stop_in_line", str(path)) as next_one:
        assert next_one.hear() == "open"
        with stopped("stop_in_transaction", path):
            next_one.tell()
            next_one.wait_until_stopped()
        meanwhile = caller.calls()
        next_one.go_on()
        next_one.wait()
        afterwards = caller.calls()

    check_busy(meanwhile)
    check_done(afterwards)


@pytest.mark.parametrize("work", ["stop_in_sync", "stop_in_sync_of_the_book"])
def test_a_process_that_is_stopped_while_it_syncs_holds_up_nobody(path: Path, work: str) -> None:
    with Caller(path) as caller, stopped(work, path):
        answers = caller.calls()

    check_done(answers)


def test_who_reads_needs_no_lock_while_the_tables_have_everything(path: Path) -> None:
    reader = open_queue(str(path))
    reader.qsize()

    with stopped("stop_in_transaction", path):
        began = time.monotonic()
        assert reader.qsize() == len(reader.peek(100)) == 20
        assert time.monotonic() - began < TIMEOUT

    reader.store.close()


def test_who_reads_is_told_in_time_when_what_the_stopped_one_has_noted_cannot_be_posted(
    path: Path,
) -> None:
    reader = open_queue(str(path))
    reader.qsize()

    with stopped("stop_with_a_book", path):
        began = time.monotonic()
        with pytest.raises(StoreBusy):
            reader.qsize()
        check_busy([("StoreBusy", time.monotonic() - began)])

    assert [message.value for message in reader.peek(100)][21:] == ["noted before", "noted"]
    reader.store.close()


def test_who_comes_while_a_holder_is_stopped_is_told_in_time(path: Path) -> None:
    with stopped("stop_in_transaction", path):
        late = open_queue(str(path))
        with pytest.raises(StoreBusy):
            late.put("too late")

    late.put("later")
    late.store.close()


def test_a_caller_that_waits_longer_than_its_timeout_is_caught(path: Path) -> None:
    with (
        Caller(path, verbs=1, defect="WaitsTooLong") as caller,
        stopped("stop_in_transaction", path),
    ):
        answers = caller.calls()

    with pytest.raises(AssertionError, match="the answer came after"):
        check_busy(answers)
