"""A store with everything in it: random operations of a seed, and what those never do."""

from __future__ import annotations

import shutil
from pathlib import Path

from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put, StoredMessage
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing.random_operations import RandomOperations
from localqueue.testing.side_by_side import SideBySide

OPERATIONS = 700
_made: dict[int, tuple[Path, float]] = {}


def fill(path: Path, seed: int) -> tuple[SQLiteQueueStore, float]:
    """A store of every kind of queue, and the time there; everything that is due has happened.

    A seed is played once; later ones get a copy.
    """
    if seed not in _made:
        original = path.with_name(f"original-{seed}.sqlite3")
        _made[seed] = original, _play(original, seed)
    original, now = _made[seed]
    shutil.copy(original, path)
    return SQLiteQueueStore(path, durability="relaxed"), now


def _play(path: Path, seed: int) -> float:
    with SQLiteQueueStore(path, durability="relaxed") as store:
        pair = SideBySide(store, reopen=lambda same: same)
        choice = RandomOperations(seed, pair.model, pair.now)
        for _ in range(OPERATIONS):
            pair.run(choice.next())
        _add_what_is_rare(store, pair.now)
        # Sweeps all of them.
        store.lease(LeaseRequest(tuple(store.queues()), limit=0), now=pair.now)
    return pair.now


def _add_what_is_rare(store: SQLiteQueueStore, now: float) -> None:
    headers = b'{"trace":"a\\u0000b","\xc3\xa4":"\xe2\x82\xac"}'
    foreign = "00112233445566778899aabbccddee"
    store.configure("rare", {"ordering": "priority"}, now=now)
    puts = [
        Put("rare", b'"' + b"x" * 20_000 + b'"'),
        Put("rare", b'{"large":"' + b"y" * 5_000 + b'"}', headers=headers, delay=60.0),
        Put("rare", b"\xff\xfe no text", codec="bytes"),
        Put("rare", b"z" * 9_000, codec="bytes", headers=headers),
        Put("rare", b"[1]", id=f"{foreign}01", priority=2**31 - 1),
        Put("rare", b"[2]", id=f"{foreign}02", dedupe_key="\x00'\"{low} key"),
        Put("rare", '"ä€\U0001f600"'.encode(), headers=headers, ttl=1e6),
        Put("hybrid", b"5", dedupe_key="once"),
        Put("hybrid", b"6", delay=30.0),
        *(Put("cursor", b"%d" % n, headers=headers) for n in range(20)),
    ]
    store.enqueue_many(puts, now=now)
    # One subscriber has read a part, with one of them failed; the other nothing.
    request = LeaseRequest(("cursor.a",), limit=7, timeout=30.0, worker="anna")
    leased = store.lease(request, now=now)
    store.ack_many([_receipt(message) for message in leased[:3]], now=now)
    error = {"type": "ValueError", "module": None, "message": "no {low} good"}
    store.dead_letter_many([_receipt(leased[3])], error=error, now=now)
    store.release_many([_receipt(leased[4])], delay=5.0, error=error, now=now)


def _receipt(message: StoredMessage) -> Receipt:
    return Receipt(message.queue, message.id, message.token)
