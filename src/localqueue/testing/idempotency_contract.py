"""The contract of a ledger as a pytest class, so that others can prove their own.

    class TestMyLedger(IdempotencyStoreContract):
        @pytest.fixture
        def store(self):
            return MyLedger()

A ledger that survives being closed also overrides ``reopen(store)``.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from localqueue.idempotency.protocol import IdempotencyStore
from localqueue.idempotency.record import IdempotencyRecord

NOW = 1_700_000_000.0
PENDING = IdempotencyRecord("pending", NOW, metadata={"queue": "jobs", "message_id": "1"})
DONE = IdempotencyRecord("succeeded", NOW - 50, NOW, "inline", {"result": [1, None]})
FAILED = IdempotencyRecord("failed", NOW - 50, NOW, None, {"last_error": {"message": "no"}})


class IdempotencyStoreContract:
    """Records by key: load, save, delete, and forgetting what succeeded long ago."""

    @pytest.fixture
    def store(self) -> IdempotencyStore:
        raise NotImplementedError

    def reopen(self, store: IdempotencyStore) -> IdempotencyStore:
        """The same ledger as another process opens it, once this one is closed."""
        pytest.skip("this ledger does not survive being closed")

    def test_what_was_never_saved_is_none(self, store: IdempotencyStore) -> None:
        assert store.load("unknown") is None

    @pytest.mark.parametrize("record", [PENDING, DONE, FAILED], ids=lambda record: record.status)
    def test_a_record_comes_back_as_it_was_saved(
        self, store: IdempotencyStore, record: IdempotencyRecord
    ) -> None:
        store.save("key", record)

        assert store.load("key") == record

    def test_a_second_save_replaces_the_first(self, store: IdempotencyStore) -> None:
        store.save("key", PENDING)
        store.save("key", DONE)

        assert store.load("key") == DONE

    def test_a_deleted_key_is_unknown(self, store: IdempotencyStore) -> None:
        store.save("key", DONE)
        store.save("other", DONE)

        store.delete("key")

        assert (store.load("key"), store.load("other")) == (None, DONE)

    def test_deleting_an_unknown_key_does_nothing(self, store: IdempotencyStore) -> None:
        store.delete("unknown")

        assert store.load("unknown") is None

    def test_what_is_saved_is_a_copy(self, store: IdempotencyStore) -> None:
        record = IdempotencyRecord("pending", NOW, metadata={"tries": [1]})
        store.save("key", record)
        record.metadata["tries"].append(2)

        loaded = store.load("key")
        assert loaded is not None
        assert loaded.metadata == {"tries": [1]}
        loaded.metadata["tries"].append(3)
        assert store.load("key") == IdempotencyRecord("pending", NOW, metadata={"tries": [1]})

    def test_metadata_that_json_cannot_say_is_refused(self, store: IdempotencyStore) -> None:
        with pytest.raises(ValueError, match="JSON"):
            store.save("key", IdempotencyRecord("pending", NOW, metadata={"a": {1, 2}}))

        assert store.load("key") is None

    def test_what_succeeded_long_ago_is_pruned(self, store: IdempotencyStore) -> None:
        for age in (0, 59, 60, 61, 3600):
            store.save(f"done-{age}", replace(DONE, completed_at=NOW - age))

        assert store.count_completed_older_than(older_than=60, now=NOW) == 3
        assert store.prune_completed(older_than=60, now=NOW) == 3

        left = [age for age in (0, 59, 60, 61, 3600) if store.load(f"done-{age}") is not None]
        assert left == [0, 59]
        assert store.count_completed_older_than(older_than=60, now=NOW) == 0
        assert store.prune_completed(older_than=60, now=NOW) == 0

    def test_what_did_not_succeed_is_never_pruned(self, store: IdempotencyStore) -> None:
        for record in (PENDING, FAILED):
            store.save(record.status, replace(record, first_seen_at=0.0))
        store.save("again", DONE)
        store.save("again", PENDING)

        assert store.count_completed_older_than(older_than=0, now=NOW + 9e6) == 0
        assert store.prune_completed(older_than=0, now=NOW + 9e6) == 0

        assert [store.load(key) is None for key in ("pending", "failed", "again")] == [False] * 3

    def test_a_record_that_was_saved_again_counts_by_its_last_success(
        self, store: IdempotencyStore
    ) -> None:
        store.save("key", replace(DONE, completed_at=NOW - 1000))
        store.save("key", DONE)

        assert store.prune_completed(older_than=60, now=NOW) == 0
        assert store.load("key") == DONE

    def test_a_negative_age_is_refused(self, store: IdempotencyStore) -> None:
        for call in (store.prune_completed, store.count_completed_older_than):
            with pytest.raises(ValueError, match="older_than"):
                call(older_than=-1, now=NOW)

    def test_an_empty_key_is_refused(self, store: IdempotencyStore) -> None:
        with pytest.raises(ValueError, match="key"):
            store.save("", DONE)

    def test_threads_do_not_disturb_each_other(self, store: IdempotencyStore) -> None:
        def work(number: int) -> None:
            for turn in range(10):
                store.save(f"key-{number}", replace(DONE, completed_at=NOW + turn))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        last = replace(DONE, completed_at=NOW + 9)
        assert [store.load(f"key-{number}") for number in range(4)] == [last] * 4
        assert store.prune_completed(older_than=0, now=NOW + 9) == 4

    def test_what_was_saved_is_there_when_it_is_opened_again(self, store: IdempotencyStore) -> None:
        store.save("kept", DONE)
        store.save("deleted", DONE)
        store.delete("deleted")

        again = self.reopen(store)

        assert (again.load("kept"), again.load("deleted")) == (DONE, None)
        assert again.count_completed_older_than(older_than=0, now=NOW) == 1
