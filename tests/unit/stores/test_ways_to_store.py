"""A message is stored in one of several ways; which one leaves no trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localqueue.codec import encode_headers
from localqueue.stores.protocol import Enqueued, Put
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs.alike import AT_ONCE
from localqueue.stores.sqlite.verbs.bodies import LARGEST_INLINE

NOW = 1_000.0
PUT = Put("jobs", b'{"n":1}')
WISHES = {
    "nothing": PUT,
    "an empty value": PUT._replace(body=b""),
    "the largest value in a row": PUT._replace(body=b"x" * LARGEST_INLINE),
    "a value beside its row": PUT._replace(body=b"x" * (LARGEST_INLINE + 1)),
    "delay": PUT._replace(delay=5.0),
    "priority": PUT._replace(queue="urgent", priority=3),
    "ttl": PUT._replace(ttl=60.0),
    "the queue's ttl": PUT._replace(queue="fleeting"),
    "headers": PUT._replace(headers=encode_headers({"trace": "1"})),
    "codec": PUT._replace(codec="bytes"),
    "room": PUT._replace(queue="bounded"),
    "everything": PUT._replace(
        queue="urgent",
        delay=5.0,
        priority=3,
        ttl=60.0,
        headers=encode_headers({"trace": "1"}),
        codec="bytes",
    ),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "jobs": {},
    "urgent": {"ordering": "priority"},
    "fleeting": {"ttl": 30.0},
    "bounded": {"maxsize": 1_000},
}
KEYED = PUT._replace(dedupe_key="key")
"""In a batch with this one, all are stored one by one."""


@pytest.mark.parametrize("put", WISHES.values(), ids=WISHES.keys())
@pytest.mark.parametrize("beside", [[PUT], [PUT] * 30, [KEYED]], ids=["two", "many", "a keyed one"])
def test_a_message_put_alone_is_stored_like_one_of_a_batch(
    tmp_path: Path, put: Put, beside: list[Put]
) -> None:
    neighbours = [other if other is KEYED else put for other in beside]

    alone = stored(tmp_path / "alone.sqlite3", [put])
    together = stored(tmp_path / "together.sqlite3", [put, *neighbours])

    assert together == alone


@pytest.mark.parametrize("n", [1, 2, *(n + 1 for n in AT_ONCE), sum(AT_ONCE), 2 * max(AT_ONCE)])
def test_every_message_of_a_batch_is_stored_with_its_own_value(tmp_path: Path, n: int) -> None:
    bodies = [b"%d" % number for number in range(n)]

    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        answers = store.enqueue_many([Put("jobs", body) for body in bodies], now=NOW)

        found = [store.read("jobs", answer.message.id) for answer in answers]
        assert [message.body for message in found if message is not None] == bodies
        assert [answer.message for answer in answers] == found
        assert [answers[place] for place in range(n)] == list(answers)
        assert [event.message_id for event in store.journal(["jobs"])[1:]] == [
            answer.message.id for answer in answers
        ]
        assert store.qsize("jobs", now=NOW) == n


def test_answers_to_a_batch_share_no_history(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        answers = store.enqueue_many([PUT, PUT], now=NOW)

        first, second = (answer.message for answer in answers)
        first.history.append({"type": "mine"})

        assert second.history == []


def stored(path: Path, puts: Sequence[Put]) -> tuple[dict[str, Any], dict[str, Any], Enqueued]:
    """The first message's row, its event and its answer, on a new file."""
    with SQLiteQueueStore(path) as store:
        for queue, settings in SETTINGS.items():
            store.configure(queue, settings, now=NOW)
        answer = store.enqueue_many(puts, now=NOW)[0]
        assert store.read(answer.message.queue, answer.message.id) == answer.message
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        first = len(SETTINGS) + 1
        row = dict(db.execute("SELECT * FROM message WHERE id = ?", (first,)).fetchone())
        event = dict(db.execute("SELECT * FROM event WHERE seq = ?", (first,)).fetchone())
    # Every file has ids of its own.
    return row, event, answer._replace(message=answer.message._replace(id="its own"))
