"""A message is a plain value, also where its fields were left to be made when somebody looks."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from localqueue import MemoryQueueStore, PersistentQueue, QueueMessage
from localqueue.message import LEASED_AT, State, with_fields

Message = QueueMessage[Any]
OWN: dict[str, Any] = {
    "id": "a" * 32,
    "value": {"n": 1},
    "queue": "jobs",
    "state": State.INFLIGHT,
    "attempts": 1,
    "created_at": 10.0,
    "available_at": 10.0,
    "leased_until": 50.0,
    "leased_by": "w",
    "token": 7,
}
HISTORY = [{"type": "leased", "at": 20.0, "attempt": 1, "leased_by": "w"}]


@pytest.fixture
def message() -> Message:
    return with_fields(OWN | {LEASED_AT: 20.0})


def test_a_message_made_of_some_fields_is_the_one_made_of_all(message: Message) -> None:
    whole: Message = QueueMessage(**OWN, attempt_history=HISTORY)

    assert message == whole
    assert repr(message) == repr(whole)
    assert message.as_dict() == whole.as_dict()
    assert dataclasses.asdict(message) == dataclasses.asdict(whole)


def test_what_somebody_changes_in_a_message_stays_changed(message: Message) -> None:
    message.attempt_history.append({"type": "seen"})
    message.headers["a"] = "b"  # type: ignore[index]

    assert [entry["type"] for entry in message.attempt_history] == ["leased", "seen"]
    assert message.headers == {"a": "b"}


@pytest.mark.parametrize(
    "again",
    [
        copy.copy,
        copy.deepcopy,
        lambda message: pickle.loads(pickle.dumps(message)),
        dataclasses.replace,
    ],
    ids=["copy", "deepcopy", "pickle", "replace"],
)
def test_a_copy_is_equal(message: Message, again: Any) -> None:
    assert again(message) == message
    assert again(message).attempt_history == HISTORY


def test_a_message_has_no_other_fields(message: Message) -> None:
    with pytest.raises(AttributeError, match="no 'colour'"):
        _ = message.colour  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.id = "b"  # type: ignore[misc]
    assert LEASED_AT not in message.as_dict()


def test_messages_of_one_batch_share_nothing_that_can_be_changed() -> None:
    queue: PersistentQueue[int] = PersistentQueue("jobs", store=MemoryQueueStore())
    put = queue.put_many([1, 2], headers={"a": "b"})
    queue.put_many([3, 4])
    got = queue.get_messages(4, block=False)

    for batch in (put, got):
        for one in batch:
            one.attempt_history.append({})
            one.headers["own"] = one.id  # type: ignore[index]

    assert [one.headers["own"] for one in (*put, *got)] == [one.id for one in (*put, *got)]
    assert [len(one.attempt_history) for one in (*put, *got)] == [1, 1, 2, 2, 2, 2]
