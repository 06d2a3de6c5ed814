"""Values under (kind, key), with versions to compare and an end of life."""

from __future__ import annotations

import contextlib
import threading

import pytest

from localqueue.errors import InvalidMessage, RecordConflict
from localqueue.stores.protocol import Fate, QueueIsFull, QueueStore
from localqueue.stores.records import Record, RecordChange
from localqueue.testing.store_contract.phrases import (
    NOW,
    QUEUE,
    StoreCase,
    lease,
    new_put,
    put,
    values,
)


def _save(
    store: QueueStore,
    key: str = "a",
    value: bytes | None = b"1",
    *,
    kind: str = "k",
    now: float = NOW,
    expect: int | None = None,
    ttl: float | None = None,
) -> int:
    [version] = store.change_records([RecordChange(kind, key, value, expect, ttl)], now=now)
    return version


def _keys(
    store: QueueStore, kind: str = "k", *, now: float = NOW, prefix: str = "", after: str = ""
) -> list[str]:
    found = store.scan_records(kind, prefix=prefix, after=after, now=now)
    return [record.key for record in found]


class Records(StoreCase):
    """Save, load, compare and set, delete."""

    def test_a_record_comes_back_as_it_was_saved(self, store: QueueStore) -> None:
        assert _save(store, "a", b"\x00\xff") == 1

        assert store.load_record("k", "a", now=NOW) == Record("k", "a", b"\x00\xff", 1)

    def test_what_was_never_saved_is_absent(self, store: QueueStore) -> None:
        assert store.load_record("k", "a", now=NOW) is None
        assert _keys(store) == []

    def test_an_empty_value_is_a_value(self, store: QueueStore) -> None:
        _save(store, "a", b"")

        record = store.load_record("k", "a", now=NOW)
        assert record is not None
        assert record.value == b""

    def test_versions_grow_with_each_save(self, store: QueueStore) -> None:
        assert [_save(store, value=bytes([n])) for n in range(3)] == [1, 2, 3]

        record = store.load_record("k", "a", now=NOW)
        assert record is not None
        assert (record.value, record.version) == (b"\x02", 3)

    def test_kinds_do_not_share_their_keys(self, store: QueueStore) -> None:
        _save(store, "a", b"1", kind="one")
        _save(store, "a", b"2", kind="two")

        one = store.load_record("one", "a", now=NOW)
        two = store.load_record("two", "a", now=NOW)

        assert one is not None
        assert two is not None
        assert (one.value, two.value) == (b"1", b"2")
        assert (one.version, two.version) == (1, 1)

    def test_a_save_that_expects_the_version_there_is_succeeds(self, store: QueueStore) -> None:
        version = _save(store)

        assert _save(store, value=b"2", expect=version) == 2

    @pytest.mark.parametrize("expect", [0, 1, 3])
    def test_a_save_that_expects_another_version_is_refused(
        self, store: QueueStore, expect: int
    ) -> None:
        _save(store, value=b"1")
        _save(store, value=b"2")

        with pytest.raises(RecordConflict):
            _save(store, value=b"3", expect=expect)

        assert store.load_record("k", "a", now=NOW) == Record("k", "a", b"2", 2)

    def test_expecting_nothing_creates_only_once(self, store: QueueStore) -> None:
        assert _save(store, expect=0) == 1

        with pytest.raises(RecordConflict):
            _save(store, expect=0)

    def test_expecting_something_where_nothing_is_is_refused(self, store: QueueStore) -> None:
        with pytest.raises(RecordConflict):
            _save(store, expect=1)

        assert store.load_record("k", "a", now=NOW) is None

    def test_changes_are_applied_all_or_none(self, store: QueueStore) -> None:
        _save(store, "taken")

        with pytest.raises(RecordConflict):
            store.change_records(
                [
                    RecordChange("k", "new", b"1"),
                    RecordChange("k", "taken", None),
                    RecordChange("k", "taken too", b"1", expect=5),
                ],
                now=NOW,
            )

        assert _keys(store) == ["taken"]

    def test_several_changes_answer_with_their_versions(self, store: QueueStore) -> None:
        _save(store, "b")
        _save(store, "c")

        versions = store.change_records(
            [
                RecordChange("k", "a", b"1", expect=0),
                RecordChange("k", "b", b"2", expect=1),
                RecordChange("k", "c", None, expect=1),
            ],
            now=NOW,
        )

        assert versions == [1, 2, 0]
        assert _keys(store) == ["a", "b"]

    def test_a_deleted_record_is_absent_and_begins_anew(self, store: QueueStore) -> None:
        _save(store)
        _save(store)

        assert _save(store, value=None) == 0

        assert store.load_record("k", "a", now=NOW) is None
        assert _save(store, expect=0) == 1

    def test_a_delete_compares_too(self, store: QueueStore) -> None:
        _save(store)

        with pytest.raises(RecordConflict):
            _save(store, value=None, expect=2)

        assert _keys(store) == ["a"]
        assert _save(store, value=None, expect=1) == 0

    def test_deleting_what_is_not_there_is_no_error(self, store: QueueStore) -> None:
        assert _save(store, value=None) == 0

    def test_of_threads_that_expect_the_same_version_one_wins(self, store: QueueStore) -> None:
        _save(store)
        won: list[int] = []

        def work(number: int) -> None:
            try:
                _save(store, value=bytes([number]), expect=1)
            except RecordConflict:
                return
            won.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(won) == 1
        assert store.load_record("k", "a", now=NOW) == Record("k", "a", bytes(won), 2)

    def test_purging_a_queue_leaves_records(self, store: QueueStore) -> None:
        put(store)
        _save(store)

        store.purge(QUEUE, now=NOW)

        assert _keys(store) == ["a"]

    def test_records_survive_a_reopening(self, store: QueueStore) -> None:
        _save(store, "a", b"1", ttl=60.0)
        _save(store, "a", b"2", ttl=60.0)

        again = self.reopened(store)

        assert again.load_record("k", "a", now=NOW) == Record("k", "a", b"2", 2, NOW + 60)


class RecordsWithPuts(StoreCase):
    """Messages and records that become durable together."""

    def test_messages_and_records_are_stored_together(self, store: QueueStore) -> None:
        changes = [RecordChange("k", "a", b"1", expect=0)]

        answers = store.enqueue_with_records([new_put("x"), new_put("y")], changes, now=NOW)

        assert [answer.fate for answer in answers] == [Fate.STORED] * 2
        assert values(lease(store, 2)) == ["x", "y"]
        assert store.load_record("k", "a", now=NOW) == Record("k", "a", b"1", 1)

    def test_a_record_that_is_unlike_keeps_the_messages_out(self, store: QueueStore) -> None:
        _save(store)

        with pytest.raises(RecordConflict):
            store.enqueue_with_records(
                [new_put("x")], [RecordChange("k", "a", b"2", expect=0)], now=NOW
            )

        assert lease(store) == []
        assert store.load_record("k", "a", now=NOW) == Record("k", "a", b"1", 1)

    def test_a_message_that_is_refused_leaves_the_records_alone(self, store: QueueStore) -> None:
        _save(store)
        changes = [RecordChange("k", "a", b"2", expect=1), RecordChange("k", "b", b"1")]

        with pytest.raises(InvalidMessage):
            store.enqueue_with_records([new_put("x"), new_put("y", priority=1)], changes, now=NOW)

        assert lease(store) == []
        assert _keys(store) == ["a"]
        assert store.load_record("k", "a", now=NOW) == Record("k", "a", b"1", 1)

    def test_a_queue_without_room_leaves_the_records_alone(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 1}, now=NOW)

        with pytest.raises(QueueIsFull):
            store.enqueue_with_records(
                [new_put("x"), new_put("y")], [RecordChange("k", "a", b"1")], now=NOW
            )

        assert _keys(store) == []
        assert lease(store) == []

    def test_records_may_change_without_a_message(self, store: QueueStore) -> None:
        assert list(store.enqueue_with_records([], [RecordChange("k", "a", b"1")], now=NOW)) == []

        assert _keys(store) == ["a"]

    def test_messages_may_come_without_a_record(self, store: QueueStore) -> None:
        store.enqueue_with_records([new_put("x")], [], now=NOW)

        assert values(lease(store)) == ["x"]

    def test_of_producers_that_expect_the_same_version_one_puts(self, store: QueueStore) -> None:
        def work(number: int) -> None:
            change = RecordChange("k", "a", bytes([number]), expect=0)
            with contextlib.suppress(RecordConflict):
                store.enqueue_with_records([new_put(number)], [change], now=NOW)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        [stored] = values(lease(store, 8))
        assert store.load_record("k", "a", now=NOW) == Record("k", "a", bytes([stored]), 1)


class RecordExpiry(StoreCase):
    """A record with a time to live is absent afterwards."""

    def test_a_record_tells_when_it_ends(self, store: QueueStore) -> None:
        _save(store, ttl=60.0)

        record = store.load_record("k", "a", now=NOW + 59)
        assert record is not None
        assert record.expires_at == NOW + 60

    def test_an_expired_record_is_absent(self, store: QueueStore) -> None:
        _save(store, ttl=60.0)

        assert store.load_record("k", "a", now=NOW + 61) is None
        assert _keys(store, now=NOW + 61) == []
        assert _keys(store, now=NOW + 59) == ["a"]

    def test_an_expired_record_begins_anew(self, store: QueueStore) -> None:
        _save(store, ttl=60.0)
        _save(store, ttl=60.0)

        with pytest.raises(RecordConflict):
            _save(store, expect=2, now=NOW + 61)
        assert _save(store, expect=0, now=NOW + 61) == 1

    def test_a_save_sets_the_end_anew(self, store: QueueStore) -> None:
        _save(store, ttl=60.0)
        _save(store, ttl=60.0, now=NOW + 50)

        assert store.load_record("k", "a", now=NOW + 100) is not None
        _save(store, now=NOW + 101)
        assert store.load_record("k", "a", now=NOW + 10_000) is not None

    def test_pruning_removes_the_expired_ones_of_a_kind(self, store: QueueStore) -> None:
        for key in ("a", "b", "c"):
            _save(store, key, ttl=60.0)
        _save(store, "stays")
        _save(store, "other", kind="other", ttl=60.0)

        assert store.prune_records("k", now=NOW + 61) == 3

        assert store.prune_records("k", now=NOW + 61) == 0
        assert _keys(store, now=NOW + 61) == ["stays"]
        assert _keys(store, "other", now=NOW) == ["other"]


class RecordScans(StoreCase):
    """Records of a kind, in the order of their keys."""

    def test_a_scan_is_in_the_order_of_the_keys(self, store: QueueStore) -> None:
        for key in ("b", "a", "c", "aa", "B"):
            _save(store, key)
        _save(store, "elsewhere", kind="other")

        assert _keys(store) == ["B", "a", "aa", "b", "c"]

    def test_a_scan_goes_on_after_a_key(self, store: QueueStore) -> None:
        for number in range(10):
            _save(store, f"{number:02}")

        first = store.scan_records("k", limit=4, now=NOW)
        rest = store.scan_records("k", after=first[-1].key, now=NOW)

        assert [record.key for record in first] == ["00", "01", "02", "03"]
        assert [record.key for record in rest] == [f"{n:02}" for n in range(4, 10)]

    def test_expired_records_do_not_use_up_the_limit(self, store: QueueStore) -> None:
        for key in ("a", "b", "c"):
            _save(store, key, ttl=60.0)
        _save(store, "d")

        found = store.scan_records("k", limit=1, now=NOW + 61)

        assert [record.key for record in found] == ["d"]

    @pytest.mark.parametrize("prefix", ["x_", "x%", "x*", "x?", "x[a]", "x\\", "é", "x🙂"])
    def test_a_prefix_means_what_it_says(self, store: QueueStore, prefix: str) -> None:
        for key in (prefix, prefix + "1", "xa1", "xb", "x", "y", "X_1", "e"):
            _save(store, key)

        assert _keys(store, prefix=prefix) == [prefix, prefix + "1"]
        assert _keys(store, prefix=prefix, after=prefix) == [prefix + "1"]
        assert _keys(store, prefix=prefix, after=f"{prefix}\U0010ffff") == []

    def test_a_scan_within_a_prefix_starts_with_the_prefix(self, store: QueueStore) -> None:
        for key in ("a1", "b1", "b2", "c1"):
            _save(store, key)

        assert _keys(store, prefix="b", after="a1") == ["b1", "b2"]
        assert _keys(store, prefix="b", after="b1") == ["b2"]
