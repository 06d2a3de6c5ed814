"""What every attempt store does: run these tests over your own.

    class TestMyAttemptStore(AttemptStoreContract):
        @pytest.fixture
        def store(self): return MyAttemptStore(...)

Four methods are enough: ``load``, ``save``, ``delete`` and ``prune_exhausted``. What a store
offers beyond them is tested where it is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tenacity import wait_none

from localqueue.retry import (
    AttemptStore,
    PersistentRetryExhausted,
    PersistentRetrying,
    RetryRecord,
)
from localqueue.retry.protocol import ComparingAttemptStore

NOW = 1_000_000.0
THREADS = 4
FAILURES = 5


class AttemptStoreContract:
    """Needs a fixture ``store`` with an empty store."""

    def reopen(self, store: AttemptStore) -> AttemptStore:
        """The same store in another life, for those that survive one."""
        pytest.skip("this store does not survive being closed")

    # --- records ------------------------------------------------------------------------------
    def test_a_record_comes_back_as_it_was_saved(self, store: AttemptStore) -> None:
        store.save("a", RetryRecord(3, 1234.5678, True))

        assert store.load("a") == RetryRecord(3, 1234.5678, True)

    def test_what_was_never_saved_is_absent(self, store: AttemptStore) -> None:
        assert store.load("a") is None

    def test_the_last_save_counts(self, store: AttemptStore) -> None:
        store.save("a", RetryRecord(1, NOW))
        store.save("a", RetryRecord(2, NOW, True))
        store.save("a", RetryRecord(3, NOW))

        assert store.load("a") == RetryRecord(3, NOW)

    def test_keys_do_not_touch_each_other(self, store: AttemptStore) -> None:
        store.save("a", RetryRecord(1, NOW))
        store.save("a:b", RetryRecord(2, NOW))
        store.save("ä \N{PILE OF POO}", RetryRecord(3, NOW))

        store.delete("a")

        assert store.load("a") is None
        assert store.load("a:b") == RetryRecord(2, NOW)
        assert store.load("ä \N{PILE OF POO}") == RetryRecord(3, NOW)

    def test_changing_a_record_in_hand_does_not_change_the_stored_one(
        self, store: AttemptStore
    ) -> None:
        saved = RetryRecord(1, NOW)
        store.save("a", saved)
        saved.attempts = 7
        loaded = store.load("a")
        assert loaded is not None
        loaded.exhausted = True

        assert store.load("a") == RetryRecord(1, NOW)

    def test_deleting_what_is_not_there_does_nothing(self, store: AttemptStore) -> None:
        store.delete("a")

        assert store.load("a") is None

    # --- pruning ------------------------------------------------------------------------------
    def test_pruning_forgets_exhausted_records_that_are_old_enough_and_no_others(
        self, store: AttemptStore
    ) -> None:
        store.save("old", RetryRecord(3, NOW - 60.0, True))
        store.save("older", RetryRecord(3, NOW - 5000.0, True))
        store.save("young", RetryRecord(3, NOW - 59.0, True))
        store.save("still trying", RetryRecord(3, NOW - 5000.0))

        assert store.prune_exhausted(older_than=60.0, now=NOW) == 2

        assert [store.load(key) is None for key in ("old", "older", "young", "still trying")] == [
            True, True, False, False,
        ]  # fmt: skip
        assert store.prune_exhausted(older_than=60.0, now=NOW) == 0

    def test_a_record_that_was_reset_and_exhausted_again_is_as_old_as_its_new_start(
        self, store: AttemptStore
    ) -> None:
        store.save("a", RetryRecord(3, NOW - 5000.0, True))
        store.delete("a")
        store.save("a", RetryRecord(3, NOW - 10.0, True))

        assert store.prune_exhausted(older_than=60.0, now=NOW) == 0
        assert store.load("a") == RetryRecord(3, NOW - 10.0, True)

    def test_a_record_that_is_tried_again_is_not_pruned(self, store: AttemptStore) -> None:
        store.save("a", RetryRecord(3, NOW - 5000.0, True))
        store.save("a", RetryRecord(1, NOW - 5000.0))

        assert store.prune_exhausted(older_than=60.0, now=NOW) == 0
        assert store.load("a") == RetryRecord(1, NOW - 5000.0)

    def test_counting_says_what_pruning_would_do(self, store: AttemptStore) -> None:
        count: Callable[..., int] | None = getattr(store, "count_exhausted_older_than", None)
        if count is None:
            pytest.skip("this store does not count")
        for n in range(7):
            store.save(f"key {n}", RetryRecord(3, NOW - 10.0 * n, n % 2 == 0))

        counted = count(older_than=30.0, now=NOW)

        assert counted == 2
        assert store.prune_exhausted(older_than=30.0, now=NOW) == counted

    # --- comparing ----------------------------------------------------------------------------
    def test_a_record_is_replaced_only_if_it_is_the_expected_one(self, store: AttemptStore) -> None:
        if not isinstance(store, ComparingAttemptStore):
            pytest.skip("this store does not compare")
        one, two, three = (RetryRecord(n, NOW) for n in (1, 2, 3))

        assert store.save_if("a", one, expected=None)
        assert not store.save_if("a", three, expected=two)
        assert not store.save_if("a", three, expected=None)
        assert store.load("a") == one
        assert store.save_if("a", two, expected=one)
        assert not store.save_if("a", None, expected=one)
        assert store.save_if("a", None, expected=two)
        assert store.load("a") is None

    # --- in use -------------------------------------------------------------------------------
    def test_a_retry_spends_its_budget_once_over_several_calls(self, store: AttemptStore) -> None:
        calls: list[int] = []

        def interrupted() -> None:
            calls.append(1)
            raise KeyError if len(calls) < 3 else KeyboardInterrupt

        def failing() -> None:
            calls.append(2)
            raise KeyError

        retrying = PersistentRetrying(store=store, key="a", max_tries=4, wait=wait_none())
        with pytest.raises(KeyboardInterrupt):
            retrying(interrupted)
        with pytest.raises(KeyError):
            retrying(failing)
        with pytest.raises(PersistentRetryExhausted) as exhausted:
            retrying(failing)

        assert calls == [1, 1, 1, 2, 2]
        assert (exhausted.value.key, exhausted.value.attempts) == ("a", 4)

    def test_failures_of_several_threads_under_one_key_are_all_counted(
        self, store: AttemptStore
    ) -> None:
        retrying = PersistentRetrying(
            store=store, key="a", wait=wait_none(), clear_on_success=False
        )

        def run() -> None:
            left = iter(range(FAILURES))

            def fail_a_few_times() -> None:
                if next(left, None) is not None:
                    raise KeyError

            retrying(fail_a_few_times)

        threads = [threading.Thread(target=run) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        record = store.load("a")
        assert record is not None
        assert record.attempts == THREADS * FAILURES

    def test_records_survive_being_closed(self, store: AttemptStore) -> None:
        store.save("a", RetryRecord(3, NOW - 100.0, True))

        again = self.reopen(store)

        assert again.load("a") == RetryRecord(3, NOW - 100.0, True)
        assert again.prune_exhausted(older_than=60.0, now=NOW) == 1
