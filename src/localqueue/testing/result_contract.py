"""The contract of a result store as a pytest class, so that others can prove their own.

    class TestMyResultStore(ResultStoreContract):
        @pytest.fixture
        def store(self):
            return MyResultStore()

A store that survives being closed also overrides ``reopen(store)``.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from localqueue.results.protocol import ResultStore

VALUES: list[Any] = [{"a": [1, 2.5, None, True]}, [], "text", "é\n", 0, False, 1.5, {}]


class ResultStoreContract:
    """Values by key: load, save, delete."""

    @pytest.fixture
    def store(self) -> ResultStore:
        raise NotImplementedError

    def reopen(self, store: ResultStore) -> ResultStore:
        """The same store as another process opens it, once this one is closed."""
        pytest.skip("this store does not survive being closed")

    def test_what_was_never_saved_is_none(self, store: ResultStore) -> None:
        assert store.load("unknown") is None

    @pytest.mark.parametrize("value", VALUES, ids=repr)
    def test_a_value_comes_back_as_it_was_saved(self, store: ResultStore, value: Any) -> None:
        store.save("key", value)

        loaded = store.load("key")
        assert (loaded, type(loaded)) == (value, type(value))

    def test_a_second_save_replaces_the_first(self, store: ResultStore) -> None:
        store.save("key", 1)
        store.save("key", 2)

        assert store.load("key") == 2

    def test_keys_are_independent_of_each_other(self, store: ResultStore) -> None:
        for key in ("a", "a:b", "A", "ä", "a" * 1000):
            store.save(key, key)

        assert [store.load(key) for key in ("a", "a:b", "A", "ä", "a" * 1000)] == [
            "a", "a:b", "A", "ä", "a" * 1000,
        ]  # fmt: skip

    def test_a_deleted_key_is_unknown(self, store: ResultStore) -> None:
        store.save("key", 1)
        store.save("other", 2)

        store.delete("key")

        assert (store.load("key"), store.load("other")) == (None, 2)

    def test_deleting_an_unknown_key_does_nothing(self, store: ResultStore) -> None:
        store.delete("unknown")

        assert store.load("unknown") is None

    def test_what_is_saved_is_a_copy(self, store: ResultStore) -> None:
        value: dict[str, Any] = {"items": [1]}
        store.save("key", value)
        value["items"].append(2)

        loaded = store.load("key")
        assert loaded == {"items": [1]}
        loaded["items"].append(3)
        assert store.load("key") == {"items": [1]}

    def test_a_value_that_json_cannot_say_is_refused_and_changes_nothing(
        self, store: ResultStore
    ) -> None:
        store.save("key", "before")

        for value in ({1, 2}, object(), float("nan"), {"deep": b"bytes"}):
            with pytest.raises(ValueError, match="JSON"):
                store.save("key", value)

        assert store.load("key") == "before"

    def test_an_empty_key_is_refused(self, store: ResultStore) -> None:
        with pytest.raises(ValueError, match="key"):
            store.save("", 1)

    def test_threads_do_not_disturb_each_other(self, store: ResultStore) -> None:
        def work(number: int) -> None:
            for turn in range(10):
                store.save(f"key-{number}", [number, turn])
                seen[number].append(store.load(f"key-{number}"))

        seen: list[list[Any]] = [[] for _ in range(4)]
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert seen == [[[number, turn] for turn in range(10)] for number in range(4)]

    def test_what_was_saved_is_there_when_it_is_opened_again(self, store: ResultStore) -> None:
        store.save("kept", {"a": 1})
        store.save("deleted", 1)
        store.delete("deleted")

        again = self.reopen(store)

        assert (again.load("kept"), again.load("deleted")) == ({"a": 1}, None)
