"""What stands in the daybook beside a damaged file is saved like what is in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localqueue.codec import checksum
from localqueue.errors import StoreBusy
from localqueue.stores.protocol import Put
from localqueue.stores.sqlite.operations.rescue import Rescue
from localqueue.stores.sqlite.operations.salvage import SalvageReport, salvage
from localqueue.stores.sqlite.rows import seal
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.operations.phrases import (
    LATER,
    PAGE,
    START,
    kill_while_noting,
    raw,
    value,
)
from tests.unit.stores.phrases import picture

LEASE_THREE_AND_ACK_TWO = """
leased = store.lease(LeaseRequest(("jobs",), limit=3, worker="anna"), now=START)
ended = [Receipt("jobs", message.id, message.token) for message in leased[:2]]
assert store.ack_many(ended, now=START) == [True, True]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "saved.sqlite3"


def book(path: Path) -> Path:
    return Path(f"{path}-daybook")


def saved(target: Path) -> list[str]:
    """Ids of all that waits in the new file, after check() has found it sound."""
    with SQLiteQueueStore(target) as store:
        assert store.check().problems == ()
        return [message.id for message in store.peek("jobs", 1_000, now=LATER)]


def overwrite(path: Path, what: bytes, by: bytes, *, after: bytes = b"") -> None:
    content = path.read_bytes()
    at = content.index(what, content.index(after))
    path.write_bytes(content[:at] + by + content[at + len(by) :])


def lose_the_page_of(path: Path, table: str) -> None:
    """Everything is in the file, nothing in the -wal; then the only page of this table is lost."""
    with raw(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    root = value(path, "SELECT rootpage FROM sqlite_master WHERE name = ?", table)
    with path.open("r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(bytes(PAGE))


# --- a sound daybook ------------------------------------------------------------------------------
def test_what_a_killed_process_has_noted_comes_over_and_all_files_stay_as_they_are(
    path: Path, target: Path
) -> None:
    ids = kill_while_noting(path)
    before = picture(path.parent)

    report = salvage(path, target)

    after = picture(path.parent)
    after.pop(target.name)
    assert after == before
    assert (report.ok, report.messages, report.from_daybook) == (True, 7, 6)
    assert report.as_dict()["from_daybook"] == 6
    assert saved(target) == ids


def test_leases_of_the_daybook_are_over_and_what_is_acknowledged_there_does_not_come_back(
    path: Path, target: Path
) -> None:
    ids = kill_while_noting(path, LEASE_THREE_AND_ACK_TWO)

    report = salvage(path, target)

    # Six puts, three leases, two acks.
    assert (report.ok, report.messages, report.from_daybook) == (True, 5, 11)
    assert sorted(saved(target)) == ids[2:]
    with SQLiteQueueStore(target) as store:
        leased = store.read("jobs", ids[2])
        assert leased is not None
        assert [entry["type"] for entry in leased.history] == ["leased", "lease_expired"]
        lives = [[event.kind for event in store.history("jobs", one)] for one in ids[:2]]
        assert lives == [["enqueued", "leased", "acked"]] * 2


def test_what_is_posted_already_does_not_come_over_once_more(path: Path, target: Path) -> None:
    ids = kill_while_noting(path, "store.queues()")

    report = salvage(path, target)

    assert (report.ok, report.messages, report.from_daybook) == (True, 7, 0)
    assert saved(target) == ids


def test_a_store_salvages_its_own_file_with_what_it_has_noted(
    path: Path, target: Path, noting: None
) -> None:
    with SQLiteQueueStore(path) as store:
        for number in range(3):
            store.enqueue_many([Put("jobs", b"%d" % number)], now=START)
        report = store.salvage(target)

        assert (report.messages, report.from_daybook) == (3, 2)
        assert store.stats("jobs", now=START).ready == 3
        assert store.check().ok


# --- a damaged file, and a sound daybook ----------------------------------------------------------
def test_what_is_noted_survives_the_loss_of_all_messages(path: Path, target: Path) -> None:
    ids = kill_while_noting(path)
    lose_the_page_of(path, "message")

    report = salvage(path, target)

    assert not report.ok
    assert (report.messages, report.from_daybook) == (6, 6)
    assert [lost.id for lost in report.lost] == ids[:1]
    assert saved(target) == ids[1:]


def test_a_lost_message_that_the_daybook_acknowledges_is_not_called_lost(
    path: Path, target: Path
) -> None:
    ids = kill_while_noting(path, LEASE_THREE_AND_ACK_TWO)
    lose_the_page_of(path, "message")

    report = salvage(path, target)

    assert report.lost == ()
    assert sorted(saved(target)) == ids[2:]


@pytest.mark.parametrize("table", ["event", "queue", "mark", "identity"])
def test_what_is_noted_survives_the_loss_of_a_table_that_it_needs(
    path: Path, target: Path, table: str
) -> None:
    kill_while_noting(path)
    lose_the_page_of(path, table)

    report = salvage(path, target)

    assert (report.messages, report.from_daybook) == (7, 6)
    with SQLiteQueueStore(target) as store:
        (queue,) = store.queues()
        bodies = [message.body for message in store.peek(queue, 100, now=LATER)]
        assert bodies == [b'"noted %d"' % number for number in range(7)]
        assert store.check().problems == ()


def test_what_is_posted_does_not_come_over_once_more_when_the_mark_is_lost(
    path: Path, target: Path
) -> None:
    ids = kill_while_noting(path, LEASE_THREE_AND_ACK_TWO + "\nstore.queues()")
    lose_the_page_of(path, "mark")

    report = salvage(path, target)

    assert (report.messages, report.from_daybook) == (5, 0)
    assert sorted(saved(target)) == ids[2:]


def test_what_is_noted_after_commits_that_are_lost_with_the_wal_keeps_its_numbers(
    path: Path, target: Path
) -> None:
    with SQLiteQueueStore(path) as store:
        store.enqueue_many([Put("jobs", b'"in the file"')], now=START)
    ids = kill_while_noting(path)
    Path(f"{path}-wal").write_bytes(b"")

    report = salvage(path, target)

    assert (report.messages, report.from_daybook) == (1 + 6, 6)
    assert saved(target)[1:] == ids[1:]


def test_what_is_noted_gets_other_numbers_where_a_process_without_a_daybook_used_them(
    path: Path, target: Path
) -> None:
    ids = kill_while_noting(path, LEASE_THREE_AND_ACK_TWO)
    number = int(ids[1][16:], 16)
    with raw(path) as db:
        db.execute(
            "INSERT INTO event (seq, at, queue, message, kind, to_state, n, by)"
            " VALUES (?1, ?2, 1, ?1, 1, 0, 1, 0)",
            (number, START),
        )
        db.execute(
            "INSERT INTO message (id, queue, state, rank, pos, created_at, last, checksum, value)"
            " VALUES (?1, 1, 0, 0, ?2, ?2, ?1, ?3, x'31')",
            (number, START, seal(checksum(b"1", None), number, 1)),
        )

    report = salvage(path, target)

    assert (report.ok, report.messages, report.from_daybook) == (True, 1 + 5, 11)
    with SQLiteQueueStore(target) as store:
        bodies = {message.body for message in store.peek("jobs", 100, now=LATER)}
        assert bodies == {b"1", *(b'"noted %d"' % n for n in range(2, 7))}
        assert store.check().problems == ()


# --- a damaged daybook, and a sound file ----------------------------------------------------------
def flip_a_bit(path: Path) -> None:
    overwrite(book(path), b'"noted 4"', b'"noted 5"')


def cut_short(path: Path) -> None:
    content = book(path).read_bytes()
    book(path).write_bytes(content[: content.index(b'"noted 4"') + 3])


@pytest.mark.parametrize("damage", [flip_a_bit, cut_short])
def test_a_damaged_daybook_gives_the_entries_before_the_damage(
    path: Path, target: Path, damage: Callable[[Path], None]
) -> None:
    ids = kill_while_noting(path)
    damage(path)

    report = salvage(path, target)

    assert (report.messages, report.from_daybook) == (4, 3)
    assert saved(target) == ids[:4]
    (problem,) = report.problems
    assert "the daybook is damaged, or its end was never written" in problem


def lose_the_head(path: Path) -> None:
    overwrite(book(path), b"LQUE", bytes(64))


def lose_all(path: Path) -> None:
    book(path).write_bytes(b"x" * 5_000)


def take_that_of_another_file(path: Path) -> None:
    other = path.with_name("other.sqlite3")
    kill_while_noting(other)
    book(other).replace(book(path))


def lose_the_first_entry(path: Path) -> None:
    overwrite(book(path), b'"noted 1"', b"x")


@pytest.mark.parametrize(
    "damage", [lose_the_head, lose_all, take_that_of_another_file, lose_the_first_entry]
)
def test_a_daybook_that_cannot_be_used_is_a_problem_and_the_file_comes_over(
    path: Path, target: Path, damage: Callable[[Path], None]
) -> None:
    ids = kill_while_noting(path)
    damage(path)

    report: SalvageReport = salvage(path, target)

    assert not report.ok
    assert any("the daybook is" in problem for problem in report.problems)
    assert (report.messages, report.from_daybook) == (1, 0)
    assert saved(target) == ids[:1]


@pytest.mark.parametrize("content", [b"", bytes(1024 * 1024)])
def test_a_daybook_in_which_nothing_was_ever_noted_is_no_problem(
    path: Path, target: Path, content: bytes
) -> None:
    kill_while_noting(path)
    book(path).write_bytes(content)

    report = salvage(path, target)

    assert (report.ok, report.messages, report.from_daybook) == (True, 1, 0)


# --- meanwhile ------------------------------------------------------------------------------------
def test_a_file_whose_daybook_is_written_meanwhile_is_busy_and_nothing_is_left(
    path: Path, target: Path, noting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_over = Rescue.bring_over
    with SQLiteQueueStore(path) as store:
        for number in range(3):
            store.enqueue_many([Put("jobs", b"%d" % number)], now=START)

        def note_then_bring_over(rescue: Rescue) -> None:
            store.enqueue_many([Put("jobs", b"4")], now=START)
            bring_over(rescue)

        monkeypatch.setattr(Rescue, "bring_over", note_then_bring_over)
        with pytest.raises(StoreBusy, match="written while it was read"):
            store.salvage(target)

    assert not target.exists()
