"""The queue's row: written by one process, in force for all."""

from __future__ import annotations

import pytest

from localqueue.errors import ConfigurationError
from localqueue.stores.protocol import QueueStore
from localqueue.stores.settings import DEFAULT_SETTINGS
from localqueue.testing.store_contract.phrases import NOW, QUEUE, StoreCase, answer, put


class Settings(StoreCase):
    """What is configured, and what a queue has that never was."""

    def test_a_queue_that_was_never_used_has_no_settings(self, store: QueueStore) -> None:
        assert store.settings(QUEUE) is None
        assert store.queues() == []

    def test_a_queue_that_was_only_used_has_the_defaults(self, store: QueueStore) -> None:
        put(store)

        row = store.settings(QUEUE)

        assert row is not None
        assert row[0] == DEFAULT_SETTINGS

    def test_reading_does_not_make_a_queue(self, store: QueueStore) -> None:
        store.qsize(QUEUE, now=NOW)
        store.stats(QUEUE, now=NOW)
        store.read(QUEUE, "0" * 32)
        store.peek(QUEUE, 1, now=NOW)

        assert store.queues() == []

    def test_queues_are_listed_in_order(self, store: QueueStore) -> None:
        for name in ("b", "a", "c"):
            put(store, queue=name)
        store.configure("aa", {}, now=NOW)

        assert store.queues() == ["a", "aa", "b", "c"]

    def test_a_change_leaves_the_other_settings(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 7, "overflow": "reject"}, now=NOW)

        settings, _ = store.configure(QUEUE, {"maxsize": 8}, now=NOW)

        assert (settings.maxsize, settings.overflow) == (8, "reject")

    def test_the_version_grows_with_a_change_and_only_with_one(self, store: QueueStore) -> None:
        _, first = store.configure(QUEUE, {"maxsize": 7}, now=NOW)
        _, same = store.configure(QUEUE, {"maxsize": 7}, now=NOW)
        _, second = store.configure(QUEUE, {"maxsize": 8}, now=NOW)
        _, third = store.configure(QUEUE, {"maxsize": 7}, now=NOW)

        assert same == first
        assert first < second < third

    def test_a_put_tells_the_version_it_was_stored_under(self, store: QueueStore) -> None:
        _, version = store.configure(QUEUE, {"maxsize": 7}, now=NOW)
        assert answer(store).settings_version == version

        _, newer = store.configure(QUEUE, {"maxsize": 8}, now=NOW)
        assert answer(store).settings_version == newer

    def test_an_unknown_setting_is_refused(self, store: QueueStore) -> None:
        with pytest.raises(ConfigurationError):
            store.configure(QUEUE, {"maxsise": 7}, now=NOW)

        assert store.settings(QUEUE) is None

    def test_every_setting_can_be_written_and_read(self, store: QueueStore) -> None:
        changes = {
            "ordering": "priority",
            "maxsize": 5,
            "overflow": "overflow",
            "overflow_to": "spare",
            "throttle_delay": 0.5,
            "crash_limit": 9,
            "ttl": 60.0,
            "on_expiry": "dead-letter",
            "journal": False,
            "journal_payloads": True,
            "journal_max_age": 10.0,
            "journal_max_rows": 10,
            "fanout": "copy",
            "paused": True,
        }
        assert set(changes) == set(DEFAULT_SETTINGS.as_dict())

        written, version = store.configure(QUEUE, changes, now=NOW)

        assert written.as_dict() == changes
        assert store.settings(QUEUE) == (written, version)

    def test_a_setting_can_go_back_to_its_default(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ttl": 60.0, "paused": True}, now=NOW)

        settings, _ = store.configure(QUEUE, {"ttl": None, "paused": False}, now=NOW)

        assert settings == DEFAULT_SETTINGS

    def test_settings_survive_a_reopening(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 7, "ordering": "priority"}, now=NOW)
        row = store.settings(QUEUE)

        again = self.reopened(store)

        assert again.settings(QUEUE) == row
        assert again.configure(QUEUE, {"maxsize": 7}, now=NOW) == row
