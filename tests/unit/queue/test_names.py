"""Names of queues: checked when the queue is built, and kept apart from each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import ConfigurationError, InvalidArgument, WrongType
from localqueue.queue import PersistentQueue
from localqueue.spec import QueueSpec
from localqueue.stores.memory import MemoryQueueStore
from tests.unit.queue.phrases import NewQueue, drain


@pytest.mark.parametrize("name", ["", " ", "a:b", " a", "a\n", "a\0b", "\ud800", "x" * 201])
def test_a_name_that_cannot_be_kept_is_refused_when_the_queue_is_built(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(InvalidArgument, match="queue name"):
        PersistentQueue(name, store_path=tmp_path / "queue.sqlite3")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [5, b"jobs", ["jobs"]])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(WrongType, match="queue name must be a string"):
        PersistentQueue(name)


def test_a_queue_needs_a_name_or_a_spec() -> None:
    with pytest.raises(ConfigurationError, match="pass either name= or spec="):
        PersistentQueue()


def test_a_name_beside_a_spec_wins() -> None:
    store = MemoryQueueStore()

    queue: PersistentQueue[Any] = PersistentQueue("mine", spec=QueueSpec("theirs"), store=store)

    assert queue.name == "mine"
    assert PersistentQueue.from_spec(QueueSpec("theirs"), store=store).name == "theirs"


@pytest.mark.parametrize(
    "name",
    ["jobs", "jobs.eu", "Jöbs 漢字 🎉", "a/b", "..", "%s", "'; DROP TABLE message", "x" * 200],
)
def test_any_other_text_names_a_queue_of_its_own(new_queue: NewQueue, name: str) -> None:
    new_queue("another").put("not here")

    new_queue(name).put("here")

    assert drain(new_queue(name)) == ["here"]
    assert new_queue("another").store.queues() == sorted(["another", name])


def test_capitals_and_forms_of_letters_make_another_name(new_queue: NewQueue) -> None:
    for name in ("jobs", "Jobs", "caf\u00e9", "cafe\u0301"):
        new_queue(name).put(name)

    assert drain(new_queue("Jobs")) == ["Jobs"]
    assert drain(new_queue("cafe\u0301")) == ["cafe\u0301"]
