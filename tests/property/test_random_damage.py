"""Whatever happens to the bytes of a file, no wrong payload is delivered."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from localqueue.errors import StoreError
from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put, StoredMessage
from localqueue.stores.sqlite import rows
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs import lease, lease_plain

START = 1_700_000_000.0
OVERWRITES = 300
SEEDS = (20, 23, 25)
PAGE = 4096
MOST_ROUNDS = 40
BOOM = {"type": "ValueError", "module": "builtins", "message": "boom"}


class Payload(NamedTuple):
    body: bytes
    headers: bytes | None
    codec: str


Payloads = dict[tuple[str, str], Payload]
"""By queue and id."""


class WrongPayload(AssertionError):
    """A message was delivered that nobody put like that."""


def make_file(path: Path) -> Payloads:
    """Small and large values, with headers, in queues of every order, and behind cursors."""
    store = SQLiteQueueStore(path, durability="relaxed")
    settings: dict[str, dict[str, object]] = {
        "priority": {"ordering": "priority"},
        "keys": {"ordering": "per-key"},
        "copies": {"fanout": "copy"},
        "log": {"fanout": "cursor", "journal_payloads": True},
    }
    for queue, changes in settings.items():
        store.configure(queue, changes, now=START)
    for topic in ("copies", "log"):
        for name in ("a", "b"):
            store.subscribe(topic, name, now=START)
    for number in range(40):
        now = START + number
        text = f'"{number} {"=" * (number % 7) * 20}"'.encode()
        large = f'"{number} {"large " * 1000}"'.encode()
        store.enqueue_many(
            [
                Put("plain", text, headers=b'{"trace":"%d"}' % number),
                Put("plain", b"\0%d" % number, codec="bytes", dedupe_key=f"k{number}"),
                Put("priority", text, priority=number % 3),
                Put("keys", text, ordering_key=f"key {number % 5}"),
                Put("copies", text),
                Put("log", text, headers=b'{"a":"b"}'),
            ],
            now=now,
        )
        if number % 5 == 0:
            store.enqueue_many([Put("plain", large), Put("log", large)], now=now)
    put = {
        (queue, message.id): Payload(message.body, message.headers, message.codec)
        for queue in store.queues()
        for message in everything(store, queue)
    }
    store.close()
    return put


def everything(store: SQLiteQueueStore, queue: str) -> list[StoredMessage]:
    """All messages of the queue: those that are held come forward while others are leased."""
    found = store.peek(queue, 1_000, now=START + 100)
    leased: list[StoredMessage] = []
    while taken := store.lease(LeaseRequest((queue,), limit=100), now=START + 100):
        leased += taken
        if queue != "keys":
            continue
        receipts = [Receipt(message.queue, message.id, message.token) for message in taken]
        store.dead_letter_many(receipts, now=START + 100)
    if queue == "keys":
        ids = [message.id for message in sorted(leased, key=lambda message: message.id)]
        assert all(store.requeue_dead_many(queue, ids, now=START + 101))
        return leased
    receipts = [Receipt(message.queue, message.id, message.token) for message in leased]
    # Some stay leased, some are dead letters: they may be delivered again, too.
    store.release_many(receipts[::2], error=BOOM, now=START + 102)
    store.dead_letter_many(receipts[1::4], now=START + 103)
    assert len(found) == len(leased)
    return leased


def overwrite(image: bytes, random: Random) -> bytes:
    """One of the things that disks, file systems and other programs do to files."""
    damaged = bytearray(image)
    start = random.randrange(len(image))
    length = random.choice((1, 1, 4, 16, 64, 512))
    kind = random.choice(("flip", "bytes", "bytes", "zeros", "copy", "page", "text", "cut"))
    if kind == "flip":
        damaged[start] ^= 1 << random.randrange(8)
    elif kind == "bytes":
        damaged[start : start + length] = random.randbytes(min(length, len(image) - start))
    elif kind == "zeros":
        damaged[start : start + length] = bytes(min(length, len(image) - start))
    elif kind == "copy":
        source = random.randrange(len(image) - length)
        start = min(start, len(image) - length)
        damaged[start : start + length] = image[source : source + length]
    elif kind == "page":
        pages = len(image) // PAGE
        source, target = random.randrange(pages) * PAGE, random.randrange(pages) * PAGE
        damaged[target : target + PAGE] = image[source : source + PAGE]
    elif kind == "text":
        # Inside a value, so that SQLite itself sees nothing.
        found = image.find(b"==", start)
        if found >= 0:
            damaged[found] = random.randrange(256)
    else:
        del damaged[max(start, PAGE) :]
    return bytes(damaged)


def deliver_all(path: Path, put: Payloads) -> tuple[int, int]:
    """Drain every queue that can be opened; how many were delivered, and how many errors met."""
    store = SQLiteQueueStore(path, durability="relaxed", timeout=1.0)
    delivered = errors = 0
    try:
        for queue in sorted({queue for queue, _ in put}):
            try:
                delivered += drain(store, queue, put)
            except StoreError:
                errors += 1
    finally:
        store.close()
    return delivered, errors


def drain(store: SQLiteQueueStore, queue: str, put: Payloads) -> int:
    delivered, now = 0, START + 1_000
    for _ in range(MOST_ROUNDS):
        leased = store.lease(LeaseRequest((queue,), limit=50), now=now)
        if not leased:
            break
        for message in leased:
            expected = put.get((queue, message.id))
            got = Payload(message.body, message.headers, message.codec)
            if expected != got:
                raise WrongPayload(f"{queue} {message.id}: put {expected}, delivered {got}")
        delivered += len(leased)
        store.ack_many([Receipt(m.queue, m.id, m.token) for m in leased], now=now)
    return delivered


class Outcome(NamedTuple):
    delivered: int
    errors: int
    damaged: int
    """Files of which some, but not all, could be delivered, or that were refused."""


def damage_many_times(folder: Path, seed: int) -> Outcome:
    path = folder / "queue.sqlite3"
    put = make_file(path)
    image = path.read_bytes()
    whole, _ = deliver_all(path, put)
    random, total, errors, damaged = Random(seed), 0, 0, 0
    for attempt in range(OVERWRITES):
        for rest in folder.glob("queue.sqlite3*"):
            rest.unlink()
        path.write_bytes(overwrite(image, random))
        try:
            delivered, met = deliver_all(path, put)
        except WrongPayload as error:
            raise WrongPayload(f"overwrite {attempt} of seed {seed}: {error}") from error
        total, errors, damaged = total + delivered, errors + met, damaged + (delivered != whole)
    return Outcome(total, errors, damaged)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", SEEDS)
def test_300_overwrites_deliver_no_wrong_payload(seed: int, tmp_path: Path) -> None:
    outcome = damage_many_times(tmp_path, seed)

    # The damage was real, and most of what was not damaged was delivered.
    assert outcome.damaged > OVERWRITES / 10
    assert outcome.errors > 0
    assert outcome.delivered > OVERWRITES * 50


@pytest.mark.long
@pytest.mark.parametrize("seed", range(26, 60))
def test_10_000_overwrites_deliver_no_wrong_payload(seed: int, tmp_path: Path) -> None:
    assert damage_many_times(tmp_path, seed).delivered > OVERWRITES * 50


def test_without_the_checksum_a_wrong_payload_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted defect: bodies are believed."""
    monkeypatch.setattr(rows, "is_damaged", lambda row: False)
    monkeypatch.setattr(lease, "is_damaged", lambda row: False)
    monkeypatch.setattr(lease_plain, "_are_sound", lambda *rest: True)

    with pytest.raises(WrongPayload, match="put Payload"):
        damage_many_times(tmp_path, SEEDS[0])
