"""Which calls are noted, and which are for the tables; the answers are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localqueue.message import Receipt
from localqueue.outcome import Ack, Release
from localqueue.stores.protocol import LeaseRequest, Put, Settle
from localqueue.stores.sqlite.daybook import book, planning
from localqueue.stores.sqlite.daybook.entries import Entry, Puts
from localqueue.stores.sqlite.daybook.file import SIZE, DaybookFile
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs.bodies import LARGEST_INLINE
from tests.unit.stores.daybook.phrases import (
    NOW,
    QUEUE,
    ack,
    bodies,
    daybook,
    is_noted,
    lease,
    open_store,
    put,
    query,
    waiting,
)
from tests.unit.stores.engine.phrases import meeting
from tests.unit.stores.phrases import count_noted


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def store(path: Path, noting: None) -> Iterator[SQLiteQueueStore]:
    with open_store(path) as store:
        yield store


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    return count_noted(monkeypatch)


def test_plain_puts_leases_and_acks_are_noted(store: SQLiteQueueStore, noted: list[Entry]) -> None:
    assert is_noted(noted, lambda: put(store))
    assert is_noted(noted, lambda: put(store, b"1", b"2"))
    leased = lease(store)
    assert len(noted) == 3
    assert is_noted(noted, lambda: ack(store, leased))
    assert is_noted(noted, lambda: lease(store, remove=True))
    assert bodies(lease(store)) == [b"2"]


def test_a_call_that_ends_and_leases_is_noted(store: SQLiteQueueStore, noted: list[Entry]) -> None:
    put(store, b"1", b"2")
    [first] = lease(store)
    settle = Settle(Receipt(QUEUE, first.id, first.token), Ack())
    before = len(noted)

    _, [second] = store.settle_and_lease([settle], LeaseRequest((QUEUE,)), now=NOW)

    assert len(noted) == before + 2
    assert second.body == b"2"
    settle = Settle(Receipt(QUEUE, second.id, second.token), Release(0.0, None))
    assert not is_noted(noted, lambda: store.settle_and_lease([settle], None, now=NOW))


def test_who_takes_turns_with_another_gives_up_noting(path: Path, noted: list[Entry]) -> None:
    """What one notes the other has to post with its next call: that takes longer than no note."""
    with open_store(path) as one, open_store(path) as other:
        for _ in range(200):
            put(one)
            ack(one, lease(one))
            put(other)

        assert len(noted) < 50


def test_who_took_turns_notes_again_when_the_other_is_gone(path: Path, noted: list[Entry]) -> None:
    with open_store(path) as one:
        with open_store(path) as other:
            for _ in range(20):
                put(one)
                ack(one, lease(one))
                put(other)
        before = len(noted)

        for _ in range(200):
            put(one)

        assert len(noted) > before + 50


def test_who_makes_a_few_calls_needs_no_book(path: Path, noted: list[Entry]) -> None:
    with open_store(path) as store:
        for _ in range(book.WARM_UP):
            put(store)
        assert not noted
        assert not daybook(path).exists()

        put(store)

        assert len(noted) == 1
        assert daybook(path).exists()


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 1.0},
        {"ttl": 5.0},
        {"headers": b"{}"},
        {"dedupe_key": "k"},
        {"request_id": "r"},
        {"codec": "bytes"},
    ],
    ids=str,
)
def test_a_put_that_asks_for_something_is_not_noted(
    store: SQLiteQueueStore, noted: list[Entry], options: dict[str, Any]
) -> None:
    put(store)

    assert not is_noted(noted, lambda: put(store, **options))
    assert not is_noted(
        noted,
        lambda: store.enqueue_many([Put(QUEUE, b"1"), Put(QUEUE, b"2", **options)], now=NOW),
    )


@pytest.mark.parametrize(
    "settings",
    [{"maxsize": 9}, {"ttl": 5.0}, {"journal_payloads": True}],
    ids=str,
)
def test_a_put_into_a_queue_with_wishes_is_not_noted(
    store: SQLiteQueueStore, noted: list[Entry], settings: dict[str, Any]
) -> None:
    store.configure(QUEUE, settings, now=NOW)

    assert not is_noted(noted, lambda: put(store))


def test_a_put_into_a_queue_that_nobody_has_used_is_not_noted(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    def put_into_another() -> None:
        store.enqueue_many([Put("another", b"1")], now=NOW)

    assert not is_noted(noted, put_into_another)
    assert is_noted(noted, put_into_another)


@pytest.mark.parametrize("settings", [{"paused": True}, {"ordering": "per-key"}], ids=str)
def test_a_lease_from_such_a_queue_is_not_noted(
    store: SQLiteQueueStore, noted: list[Entry], settings: dict[str, Any]
) -> None:
    put(store, b"1", b"2")
    store.configure(QUEUE, settings, now=NOW)

    assert not is_noted(noted, lambda: lease(store))


def test_a_lease_from_several_queues_or_by_one_who_does_not_know_the_codec_is_not_noted(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"1", b"2", b"3")
    several = LeaseRequest((QUEUE, "another"))

    assert is_noted(noted, lambda: lease(store, codecs=("json", "bytes")))
    assert not is_noted(noted, lambda: store.lease(several, now=NOW))
    assert not is_noted(noted, lambda: lease(store, codecs=("bytes",)))


@pytest.mark.parametrize("n", [planning.LARGEST_BATCH, planning.LARGEST_BATCH + 1])
def test_larger_batches_are_not_noted(store: SQLiteQueueStore, noted: list[Entry], n: int) -> None:
    is_small = n <= planning.LARGEST_BATCH

    assert is_noted(noted, lambda: put(store, *[b"1"] * n)) is is_small
    leased = lease(store, n)
    assert len(leased) == n
    assert len(noted) == 2 * is_small
    assert is_noted(noted, lambda: ack(store, leased)) is is_small
    assert waiting(store) == []


# --- others -------------------------------------------------------------------------------------
def test_the_first_call_after_another_process_wrote_is_not_noted(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"1")
    with SQLiteQueueStore(path, durability="relaxed") as other:
        put(other, b"2")
        assert len(noted) == 1

        assert not is_noted(noted, lambda: put(store, b"3"))
        assert is_noted(noted, lambda: put(store, b"4"))
        assert bodies(lease(other, 9)) == [b"1", b"2", b"3", b"4"]


def test_two_stores_of_a_process_are_two_of_the_file(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    with SQLiteQueueStore(path, durability="relaxed") as other:
        both = (store, other)
        for number in range(60):
            put(both[number // 3 % 2], b"%d" % number)

        assert len(noted) > 30
        assert bodies(lease(store, 30)) == [b"%d" % number for number in range(30)]
        assert bodies(lease(other, 30)) == [b"%d" % number for number in range(30, 60)]
        assert store.check().ok


def test_a_lease_of_another_process_is_ended_by_whoever_has_its_receipt(
    path: Path, store: SQLiteQueueStore
) -> None:
    put(store, b"1", b"2")
    with SQLiteQueueStore(path, durability="relaxed") as other:
        [one] = lease(other)
        [two] = lease(store)

        assert ack(store, [one]) == ack(other, [two]) == [True]
        assert ack(other, [one]) == ack(store, [two]) == [False]


# --- receipts -----------------------------------------------------------------------------------
def test_a_receipt_acts_once_and_only_with_its_token(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"1", b"2")
    one, two = lease(store, 2)
    forged = [one._replace(token=two.token), one._replace(token=0)]

    assert [ack(store, [message]) for message in forged] == [[False], [False]]
    assert ack(store, [one, one]) == [True, False]
    assert ack(store, [one]) == [False]
    assert ack(store, [two]) == [True]


def test_one_lease_that_two_calls_of_a_group_end_is_ended_once(store: SQLiteQueueStore) -> None:
    put(store)
    leased = lease(store)

    with meeting(store) as met:
        for name in ("a", "b"):
            met.add(name, partial(ack, store, leased))

    assert sorted(met.answers.values()) == [[False], [True]]


# --- time ---------------------------------------------------------------------------------------
def test_a_generation_takes_notes_for_so_long(store: SQLiteQueueStore, noted: list[Entry]) -> None:
    late = NOW + book.LONGEST

    assert is_noted(noted, lambda: put(store, now=late - 0.001))
    assert not is_noted(noted, lambda: put(store, now=late))
    assert is_noted(noted, lambda: put(store, now=late))


def test_what_happens_before_something_that_is_noted_is_not_noted(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    assert is_noted(noted, lambda: put(store, b"1", now=NOW + 0.5))

    assert not is_noted(noted, lambda: put(store, b"2", now=NOW + 0.4))
    assert bodies(lease(store, 9, now=NOW + 0.6)) == [b"2", b"1"]


def test_nothing_is_leased_from_the_book_when_something_is_due(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"delayed", delay=0.5)
    put(store, b"0", b"1", now=NOW + 0.1)
    put(store, b"2", now=NOW + 0.2)

    assert is_noted(noted, lambda: lease(store, now=NOW + 0.4))
    put(store, b"3", now=NOW + 0.6)
    leased: list[bytes] = []
    assert not is_noted(noted, lambda: leased.extend(bodies(lease(store, 3, now=NOW + 0.7))))
    assert leased == [b"1", b"2", b"delayed"]


def test_a_lease_that_stands_in_the_book_ends_in_time(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"1")
    lease(store, timeout=0.3)
    put(store, b"2", now=NOW + 0.1)
    leased: list[bytes] = []

    assert not is_noted(noted, lambda: leased.extend(bodies(lease(store, 2, now=NOW + 0.3))))

    assert sorted(leased) == [b"1", b"2"]


# --- order --------------------------------------------------------------------------------------
def test_what_was_there_comes_before_what_is_noted(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, *[b"%d" % number for number in range(300)])
    assert len(waiting(store)) == 300
    put(store, b"300")
    got: list[bytes] = []
    for n in (1, 10, 100, 150, 40):
        got += bodies(lease(store, n))
        put(store, b"more")

    assert got == [b"%d" % number for number in range(301)]


def test_a_higher_priority_comes_before_what_is_noted(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
    put(store, b"low")
    put(store, b"high", priority=5)
    put(store, b"later", now=NOW + 0.1)
    before = len(noted)

    got = [bodies(lease(store, now=NOW + 0.1)) for _ in range(3)]

    assert got == [[b"high"], [b"low"], [b"later"]]
    assert len(noted) > before


def test_a_message_of_a_later_time_does_not_come_before_what_is_noted(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    """The clock of another process may be ahead."""
    with SQLiteQueueStore(path, durability="relaxed") as other:
        put(other, b"ahead", now=NOW + 100)
        put(store, b"first", now=NOW)
        assert is_noted(noted, lambda: put(store, b"second", now=NOW + 0.1))

        assert bodies(lease(store, 3, now=NOW + 0.2)) == [b"first", b"second", b"ahead"]


def test_a_message_that_is_not_plain_is_leased_in_its_turn(store: SQLiteQueueStore) -> None:
    put(store, b"1")
    put(store, b"2", headers=b'{"a":"b"}')
    put(store, b"3")

    got = [lease(store) for _ in range(4)]

    assert [bodies(messages) for messages in got] == [[b"1"], [b"2"], [b"3"], []]
    assert got[1][0].headers == b'{"a":"b"}'


# --- room ---------------------------------------------------------------------------------------
def posted(path: Path) -> int:
    """How many messages the tables have."""
    ((n,),) = query(path, "SELECT count(*) FROM message")
    return int(n)


LARGE = b'"%s"' % (b"x" * (LARGEST_INLINE - 2))
FITTING = SIZE // (LARGEST_INLINE + 100)


def test_a_book_that_is_full_is_posted_and_begun_anew(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    noted_calls = [is_noted(noted, lambda: put(store, LARGE)) for _ in range(2 * FITTING)]

    assert all(noted_calls)
    assert FITTING < posted(path) < 2 * FITTING
    assert len(waiting(store)) == 2 * FITTING


def test_no_generation_has_more_events_than_somebody_can_wait_for(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    for _ in range(book.MOST_EVENTS):
        put(store)
    assert posted(path) == 0

    assert is_noted(noted, lambda: put(store))
    assert posted(path) == book.MOST_EVENTS


def test_who_syncs_posts_a_full_book_with_the_next_call_in_one_sync(
    path: Path, noting: None, noted: list[Entry]
) -> None:
    with open_store(path, "full") as store:
        noted_calls = [is_noted(noted, lambda: put(store, LARGE)) for _ in range(2 * FITTING)]

        assert 1 <= noted_calls.count(False) <= 2
        assert noted_calls.index(False) > FITTING
        assert len(waiting(store)) == 2 * FITTING


def test_messages_are_leased_in_order_across_generations(
    path: Path, store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of the queue is still known when only the book was posted."""
    monkeypatch.setattr(book, "MOST_EVENTS", 16)
    put(store, *(b"%d" % number for number in range(10)))
    taken: list[bytes] = []
    number = 10
    while len(taken) < 60:
        put(store, b"%d" % number)
        number += 1
        leased = lease(store, 2)
        taken += bodies(leased)
        assert ack(store, leased) == [True] * len(leased)

    assert taken == [b"%d" % number for number in range(len(taken))]
    assert posted(path) < 30, "it was posted on the way"


def test_a_lease_that_was_posted_is_acknowledged_once(
    path: Path, store: SQLiteQueueStore, noted: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "MOST_EVENTS", 16)
    put(store, *(b"%d" % number for number in range(8)))
    held = lease(store, 4)
    for _ in range(8):
        put(store)
    assert posted(path) > 0

    assert is_noted(noted, lambda: ack(store, held[:2]))
    assert ack(store, held) == [False, False, True, True]
    assert ack(store, held) == [False] * 4


def test_the_tables_are_swept_now_and_then_however_much_is_noted(
    store: SQLiteQueueStore, noted: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "MOST_EVENTS", 16)
    step = book.LONGEST / 100
    noted_calls = [
        is_noted(noted, partial(put, store, now=NOW + number * step)) for number in range(250)
    ]

    assert noted_calls.count(False) == 2


def test_a_disk_without_room_for_a_book_is_no_error(
    path: Path, noting: None, noted: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DaybookFile, "make", full)
    with open_store(path) as store:
        for _ in range(3):
            put(store)

        assert not noted
        assert len(waiting(store)) == 3


# --- groups -------------------------------------------------------------------------------------
def test_calls_of_a_group_are_noted_together(store: SQLiteQueueStore, noted: list[Entry]) -> None:
    put(store, b"0", b"1", b"2")
    ended = lease(store)
    calls: dict[str, Callable[[], Any]] = {
        "put": lambda: put(store, b"3"),
        "lease a": lambda: bodies(lease(store)),
        "ack": lambda: ack(store, ended),
        "lease b": lambda: bodies(lease(store)),
    }
    before = len(noted)

    with meeting(store) as met:
        for name, call in calls.items():
            met.add(name, call)

    assert not met.errors
    assert len(noted) == before + 4
    assert (met.answers["lease a"], met.answers["lease b"]) == ([b"1"], [b"2"])
    assert met.answers["ack"] == [True]
    assert waiting(store) == [b"3"]


def test_one_call_that_is_for_the_tables_takes_its_group_there(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"0")

    with meeting(store) as met:
        met.add("plain", lambda: put(store, b"1"))
        met.add("special", lambda: put(store, b"2", headers=b"{}"))

    assert not met.errors
    assert [entry.bodies for entry in noted if isinstance(entry, Puts)] == [(b"0",)]
    assert waiting(store) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("n", [1, 3])
def test_a_lease_sees_what_was_put_before_it_in_its_group(store: SQLiteQueueStore, n: int) -> None:
    if n > 1:
        put(store, *[b"0"] * (n - 1))

    with meeting(store) as met:
        met.add("put", lambda: put(store, b"1"))
        met.add("lease", lambda: bodies(lease(store, n)))

    assert met.answers["lease"] == [b"0"] * (n - 1) + [b"1"]


@pytest.mark.parametrize(
    ("odd", "error"),
    [
        ({"worker": "w\udcff"}, UnicodeEncodeError),
        ({"worker": 2**70}, OverflowError),
        ({"timeout": 10**400}, OverflowError),
    ],
)
def test_a_lease_that_the_tables_would_not_take_fails_alone(
    path: Path, store: SQLiteQueueStore, odd: dict[str, Any], error: type[Exception]
) -> None:
    """Noted, it would fail whoever posts it, again and again."""
    put(store, b"1")
    put(store, b"2")
    with pytest.raises(error):
        lease(store, **odd)

    assert bodies(lease(store, 2)) == [b"1", b"2"]
    with SQLiteQueueStore(path) as another:
        assert another.stats("jobs", now=NOW).inflight == 2


def test_a_value_that_can_be_changed_is_not_noted(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    body = bytearray(b"1")

    assert not is_noted(noted, lambda: put(store, body))  # type: ignore[arg-type]
    body[:] = b"2"
    assert waiting(store) == [b"1"]
