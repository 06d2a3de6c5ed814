"""What is sound in a damaged file is saved, whatever was damaged; what is not is named."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from localqueue.codec import checksum
from localqueue.errors import (
    InvalidArgument,
    JournalForeign,
    JournalTrimmed,
    StoreBusy,
    StoreCorrupt,
    StoreReadOnly,
    StoreUnsupported,
    WrongType,
)
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite import rows
from localqueue.stores.sqlite.operations import mend, noted
from localqueue.stores.sqlite.operations.rescue import Rescue
from localqueue.stores.sqlite.operations.salvage import SalvageReport, salvage
from localqueue.stores.sqlite.rows import seal
from localqueue.stores.sqlite.sql import APPLICATION_ID, SCHEMA_VERSION, schema
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs import lease
from tests.unit.stores.operations.phrases import (
    BOOM,
    LATER,
    PAGE,
    START,
    everything,
    fill,
    of_everything,
    raw,
    receipt,
    value,
)
from tests.unit.stores.phrases import picture, run_program

MESSAGES = 90


class Original(NamedTuple):
    queue: str
    body: bytes
    headers: bytes


class Marked(NamedTuple):
    """A file in which every part of every message carries the message's own mark."""

    image: bytes
    puts: dict[int, Original]
    gone: set[bytes]
    """Values that were acknowledged: they may be written somewhere, but must not come back."""
    pages: dict[int, set[int]]
    """Where the marks of each message are, from 0."""

    @property
    def length(self) -> int:
        return len(self.image) // PAGE

    def untouched(self, damaged: set[int]) -> set[bytes]:
        """Values of messages that are on none of these pages."""
        return {put.body for n, put in self.puts.items() if not self.pages[n] & damaged}


def marked_file(path: Path) -> Marked:
    puts: dict[int, Original] = {}
    with SQLiteQueueStore(path, durability="relaxed") as store:
        store.configure("keys", {"ordering": "per-key"}, now=START)
        store.configure("log", {"fanout": "cursor"}, now=START)
        store.configure("kept", {"journal_payloads": True}, now=START)
        for name in ("a", "b"):
            store.subscribe("log", name, now=START)
        for number in range(MESSAGES):
            queue = ("plain", "keys", "log", "kept")[number % 4]
            times = 1_200 if number % 15 == 3 else 1 + number % 30
            body = json.dumps(f"<m{number:05}>" * times).encode()
            put = Original(queue, body, b'{"mark":"<h%05d>"}' % number)
            store.enqueue_many(
                [
                    Put(
                        queue,
                        body,
                        headers=put.headers,
                        dedupe_key=f"k{number}" if number % 3 == 0 else None,
                        ordering_key=f"key {number % 3}" if queue == "keys" else None,
                        delay=5.0 if number % 13 == 0 and queue != "log" else 0.0,
                    )
                ],
                now=START + number,
            )
            puts[number] = put
        leased = store.lease(LeaseRequest(("plain", "kept"), limit=20, worker="w"), now=START + 200)
        store.ack_many([receipt(message) for message in leased[:8]], now=START + 201)
        failed = [receipt(message) for message in leased[8:14]]
        store.release_many(failed, error=BOOM, now=START + 202)
        read = store.lease(LeaseRequest(("log.a",), limit=6), now=START + 203)
        store.dead_letter_many([receipt(message) for message in read[:3]], now=START + 204)
        gone = {message.body for message in leased[:8]}
    image = path.read_bytes()
    living = {number: put for number, put in puts.items() if put.body not in gone}
    return Marked(image, living, gone, {number: pages_with(image, number) for number in living})


def pages_with(image: bytes, number: int) -> set[int]:
    found = set()
    for mark in (b"<m%05d>" % number, b"<h%05d>" % number):
        at = image.find(mark)
        while at >= 0:
            found.add(at // PAGE)
            at = image.find(mark, at + 1)
    return found


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Marked:
    return marked_file(tmp_path_factory.mktemp("marked") / "queue.sqlite3")


def delivered(path: Path) -> tuple[list[tuple[bytes, bytes | None]], list[str]]:
    """All values and headers that come out of a file, and what check() says afterwards."""
    with SQLiteQueueStore(path, durability="relaxed") as store:
        found = everything(store)
        problems = [str(problem) for problem in store.check().problems]
    return [message for queue in found.values() for message in queue.values()], problems


class WrongPayload(AssertionError):
    """Something was saved that nobody put."""


def save(
    folder: Path, marked: Marked, image: bytes, damaged: set[int]
) -> tuple[SalvageReport, set[bytes]]:
    """Salvage the image; what must hold whatever was damaged is proved here."""
    bad, new = folder / "bad.sqlite3", folder / "new.sqlite3"
    bad.write_bytes(image)
    report = salvage(bad, new, overwrite=True)
    got, problems = delivered(new)
    new.unlink()
    expected = {put.body: put for put in marked.puts.values()}
    for body, headers in got:
        if body not in expected and body not in marked.gone:
            raise WrongPayload(body)
        if body in expected and expected[body].headers != headers:
            raise WrongPayload(headers)
    values = {body for body, _ in got}

    assert problems == []
    assert bad.read_bytes() == image
    assert sorted(marked.untouched(damaged) - values) == []
    assert not any(problem.startswith("in the new file") for problem in report.problems)
    lost = {put.body for put in marked.puts.values()} - values
    assert not lost or not report.ok
    return report, values


# --- whatever is damaged --------------------------------------------------------------------------
def test_a_sound_file_comes_over_whole(tmp_path: Path, marked: Marked) -> None:
    report, values = save(tmp_path, marked, marked.image, set())

    assert report.ok
    assert values == {put.body for put in marked.puts.values()}


@pytest.mark.parametrize("part", range(4))
def test_whichever_page_is_lost_every_message_elsewhere_is_saved(
    tmp_path: Path, marked: Marked, part: int
) -> None:
    for page in range(part, marked.length, 4):
        image = bytearray(marked.image)
        image[page * PAGE : (page + 1) * PAGE] = Random(page).randbytes(PAGE)

        _, values = save(tmp_path, marked, bytes(image), {page})

        # With the first page it is not known any more which pages were free.
        assert page == 0 or not values & marked.gone


KINDS = ("random", "zeros", "copy", "sector", "flips", "cut")


def overwrite(image: bytes, random: Random) -> tuple[bytes, set[int]]:
    """What disks and other programs do to a file, and which pages that hit."""
    damaged, count = bytearray(image), len(image) // PAGE
    hit: set[int] = set()
    kind = random.choice(KINDS)
    for _ in range(random.choice((1, 2, 5))):
        page = random.randrange(count)
        here = slice(page * PAGE, (page + 1) * PAGE)
        if kind == "random":
            damaged[here] = random.randbytes(PAGE)
        elif kind == "zeros":
            damaged[here] = bytes(PAGE)
        elif kind == "copy":
            other = random.randrange(count)
            damaged[here] = image[other * PAGE : (other + 1) * PAGE]
        elif kind == "sector":
            start = page * PAGE + 512 * random.randrange(8)
            damaged[start : start + 512] = random.randbytes(512)
        elif kind == "flips":
            for _ in range(20):
                damaged[page * PAGE + random.randrange(PAGE)] ^= 1 << random.randrange(8)
        else:
            page = max(page, count // 2)
            del damaged[page * PAGE :]
            return bytes(damaged), hit | set(range(page, count))
        hit.add(page)
    return bytes(damaged), hit


def damage_many_times(folder: Path, marked: Marked, seed: int, times: int) -> int:
    """How many messages were lost in all."""
    random, lost = Random(seed), 0
    for _ in range(times):
        image, hit = overwrite(marked.image, random)
        _, values = save(folder, marked, image, hit)
        lost += len(marked.puts) - len(values - marked.gone)
    return lost


@pytest.mark.parametrize("seed", [1, 2])
def test_random_overwrites_lose_only_what_they_hit_and_never_make_a_wrong_payload(
    tmp_path: Path, marked: Marked, seed: int
) -> None:
    assert damage_many_times(tmp_path, marked, seed, 25) > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_random_overwrites_lose_only_what_they_hit(
    tmp_path: Path, marked: Marked, seed: int
) -> None:
    assert damage_many_times(tmp_path, marked, seed, 100) > 10


def test_without_the_checksum_a_wrong_payload_is_found(
    tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted defect: values are believed, by the salvage and by the store."""
    monkeypatch.setattr(mend, "is_sound", lambda *_: True)
    monkeypatch.setattr(lease, "is_damaged", lambda row: False)
    monkeypatch.setattr(rows, "is_damaged", lambda row: False)

    with pytest.raises(WrongPayload):
        damage_many_times(tmp_path, marked, 1, 25)


# --- what comes over ------------------------------------------------------------------------------
@pytest.fixture
def whole(tmp_path: Path) -> Iterator[SQLiteQueueStore]:
    """A store with something of everything, made and salvaged without any damage."""
    of_everything(tmp_path / "queue.sqlite3")
    report = salvage(tmp_path / "queue.sqlite3", tmp_path / "new.sqlite3")
    assert (report.ok, report.records) == (True, 2)
    with SQLiteQueueStore(tmp_path / "new.sqlite3", durability="relaxed") as store:
        yield store


@pytest.fixture
def original(tmp_path: Path, whole: SQLiteQueueStore) -> Iterator[SQLiteQueueStore]:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3", durability="relaxed") as store:
        yield store


def test_messages_keep_id_attempts_errors_history_keys_and_order(
    whole: SQLiteQueueStore, original: SQLiteQueueStore
) -> None:
    for queue in original.queues():
        waiting = [m for m in original.peek(queue, 1_000, now=START + 38) if not m.token]
        for message in waiting:
            assert whole.read(queue, message.id) == message
        assert whole.dead_letters(queue) == original.dead_letters(queue)


def test_what_was_leased_is_ready_with_the_attempt_in_its_history_and_nobody_is_charged(
    whole: SQLiteQueueStore, original: SQLiteQueueStore
) -> None:
    before, after = (store.stats("jobs", now=START + 38) for store in (original, whole))
    assert (after.inflight, after.ready) == (0, before.ready + before.inflight)
    assert before.inflight > 3

    (message,) = [m for m in whole.peek("jobs", 1_000, now=START + 38) if m.attempts][:1]
    assert (message.attempts, message.crashes) == (1, 0)
    assert [entry["type"] for entry in message.history] == ["leased", "lease_expired"]
    assert message.history[0]["leased_by"] == "anna"


def test_settings_subscribers_records_readers_and_the_journal_come_over(
    whole: SQLiteQueueStore, original: SQLiteQueueStore
) -> None:
    for queue in original.queues():
        assert whole.settings(queue) == original.settings(queue)
        assert whole.subscribers(queue) == original.subscribers(queue)
    assert whole.scan_records("result", now=START) == original.scan_records("result", now=START)
    assert whole.readers() == original.readers()
    events = original.journal(limit=100_000)
    assert whole.journal(limit=100_000)[: len(events)] == events
    assert whole.journal(after=events[-1].position)[0].kind == "counted"
    seen = [
        store.stats("jobs", now=START + 38).last_seen_by_worker_id for store in (original, whole)
    ]
    assert seen[0] == seen[1] != {}


def test_dedupe_keys_still_find_their_message_and_those_of_the_gone_are_free(
    whole: SQLiteQueueStore, original: SQLiteQueueStore
) -> None:
    for key in [f"k{number}" for number in range(24)]:
        put = Put("jobs", b"9", dedupe_key=key)
        fates = [store.enqueue_many([put], now=START + 40)[0] for store in (original, whole)]
        assert fates[0].fate == fates[1].fate
        if fates[0].fate == "duplicate":
            assert fates[0].message.id == fates[1].message.id


def test_unread_publications_are_read_once_and_cancelled_ones_stay_away(
    whole: SQLiteQueueStore, original: SQLiteQueueStore
) -> None:
    for queue in ("log.a", "log.b", "copies.a"):
        ids = [
            {message.id for message in store.peek(queue, 1_000, now=LATER)}
            for store in (original, whole)
        ]
        assert ids[0] == ids[1]
        assert len(ids[0]) > 15


def test_a_salvaged_file_goes_on_with_ids_and_positions_of_its_own(
    whole: SQLiteQueueStore, original: SQLiteQueueStore
) -> None:
    here, there = fill(original, 1)[0], fill(whole, 1)[0]

    assert here[:16] != there[:16]
    with pytest.raises(JournalForeign):
        whole.journal(after=original.journal_end())


# --- what is lost ---------------------------------------------------------------------------------
def page_of(path: Path, name: str) -> int:
    """The first page of a table or index."""
    return int(value(path, "SELECT rootpage FROM sqlite_master WHERE name = ?", name)) - 1


def lose(path: Path, *pages: int) -> None:
    with path.open("r+b") as file:
        for page in pages:
            file.seek(page * PAGE)
            file.write(bytes(PAGE))


def large(path: Path, n: int = 400) -> list[str]:
    """A file whose message table has several pages; ids in order."""
    with SQLiteQueueStore(path, durability="relaxed") as store:
        return fill(store, n)


def leaf_with(path: Path, text: bytes) -> int:
    return path.read_bytes().index(text) // PAGE


def test_lost_messages_are_named_by_queue_and_id(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    ids = large(path)
    lose(path, leaf_with(path, b'"200 '))

    report = salvage(path, tmp_path / "new.sqlite3")

    lost = {one.id for one in report.lost}
    assert ids[200] in lost
    assert {(one.queue, one.why) for one in report.lost} == {
        ("jobs", "its row is on a page that is damaged")
    }
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        assert [one for one in ids if store.read("jobs", one) is None] == sorted(lost)
    assert report.messages == 400 - len(lost)
    assert not report.ok
    assert json.loads(json.dumps(report.as_dict()))["lost"][0]["queue"] == "jobs"


def test_a_value_that_is_not_what_was_put_is_lost_and_named(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    ids = large(path, 5)
    image = path.read_bytes()
    path.write_bytes(image.replace(b'"3 ....', b'"3 ..x.'))

    report = salvage(path, tmp_path / "new.sqlite3")

    assert [(one.queue, one.id, one.why) for one in report.lost] == [
        ("jobs", ids[3], "value and checksum do not agree")
    ]
    assert report.messages == 4


def test_the_pages_between_root_and_leaves_are_not_needed(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    ids = large(path)
    lose(path, page_of(path, "message"), page_of(path, "event"))

    report = salvage(path, tmp_path / "new.sqlite3")

    assert (report.messages, report.lost) == (400, ())
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        assert all(store.read("jobs", one) is not None for one in ids)
        assert len(store.history("jobs", ids[-1])) == 1


def test_a_lost_first_page_is_said_clearly_and_rows_are_known_by_their_look(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    of_everything(path)
    messages = value(path, "SELECT count(*) FROM message")
    lose(path, 0)
    with SQLiteQueueStore(path) as store, pytest.raises(StoreCorrupt):
        store.queues()

    report = salvage(path, tmp_path / "new.sqlite3")

    assert report.problems[0] == "the first page of the file, which says what it is, is lost"
    assert "its tables were recognised by the look of their rows" in report.problems[1]
    assert report.messages == messages
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        assert len(store.queues()) == 8
        assert store.check().ok


def test_a_queue_whose_row_is_lost_has_its_name_from_the_index_and_settings_from_the_journal(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue.sqlite3"
    of_everything(path)
    with SQLiteQueueStore(path) as store:
        store.configure("jobs", {"maxsize": 7_000}, now=START + 50)
        expected = {queue: store.settings(queue) for queue in store.queues()}
    lose(path, page_of(path, "queue"))

    report = salvage(path, tmp_path / "new.sqlite3")

    assert sum("the settings of the queue" in problem for problem in report.problems) == 8
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        for queue, known in expected.items():
            found = store.settings(queue)
            assert known is not None
            assert found is not None
            assert found[0] == known[0]


def test_a_queue_without_any_name_gets_one_and_keeps_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    ids = large(path, 10)
    lose(path, page_of(path, "queue"), page_of(path, "sqlite_autoindex_queue_1"))

    salvage(path, tmp_path / "new.sqlite3")

    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        assert store.queues() == ["salvaged-1"]
        assert {message.id for message in store.peek("salvaged-1", 100, now=LATER)} == set(ids)


def test_a_lost_identity_gives_new_ids_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    ids = large(path, 10)
    lose(path, page_of(path, "identity"))

    report = salvage(path, tmp_path / "new.sqlite3")

    assert "the file's identity is lost: messages have other ids than before" in report.problems
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        found = [message.id for message in store.peek("jobs", 100, now=LATER)]
        assert [one[16:] for one in found] == [one[16:] for one in ids]
        assert {one[:16] for one in found} & {one[:16] for one in ids} == set()


def test_who_reads_the_journal_is_told_that_events_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    large(path)
    with SQLiteQueueStore(path) as store:
        events = store.journal(limit=1_000)
    with raw(path) as db:
        pages = db.execute("SELECT count(*) FROM event WHERE seq < 150").fetchone()[0]
    assert pages == 149
    lose(path, *event_leaves(path)[1:2])

    report = salvage(path, tmp_path / "new.sqlite3")

    assert any(problem.startswith("event: 1 damaged pages") for problem in report.problems)
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        with pytest.raises(JournalTrimmed):
            store.journal(after=events[0].position)
        assert store.journal(after=events[-1].position)[0].kind == "counted"
        assert report.messages == 400


def event_leaves(path: Path) -> list[int]:
    """Pages of the event table's rows, in order, from its root."""
    image, root = path.read_bytes(), page_of(path, "event")
    page = image[root * PAGE : (root + 1) * PAGE]
    assert page[0] == 5
    cells = int.from_bytes(page[3:5], "big")
    pointers = [int.from_bytes(page[12 + 2 * n : 14 + 2 * n], "big") for n in range(cells)]
    return [int.from_bytes(page[at : at + 4], "big") - 1 for at in pointers]


def test_an_acknowledged_message_that_is_still_written_somewhere_does_not_come_back(
    tmp_path: Path,
) -> None:
    """Free pages hold old rows; with the first page it is unknown which ones are free."""
    path = tmp_path / "queue.sqlite3"
    large(path, 1_000)
    before = path.read_bytes()
    page = leaf_with(path, b'"500 ')
    with SQLiteQueueStore(path, durability="relaxed") as store:
        leased = store.lease(LeaseRequest(("jobs",), limit=900), now=START + 1)
        store.ack_many([receipt(message) for message in leased], now=START + 2)
    assert value(path, "PRAGMA freelist_count") > 20
    with path.open("r+b") as file:
        file.seek(page * PAGE)
        file.write(before[page * PAGE : (page + 1) * PAGE])
    lose(path, 0)

    report = salvage(path, tmp_path / "new.sqlite3")

    assert report.messages == 100
    assert any("which pages were free" in problem for problem in report.problems)


def test_the_next_of_a_key_comes_forward_when_its_head_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path, durability="relaxed") as store:
        store.configure("jobs", {"ordering": "per-key"}, now=START)
        puts = [Put("jobs", b'"%d"' % number, ordering_key="k") for number in range(3)]
        store.enqueue_many(puts, now=START)
    image = path.read_bytes()
    path.write_bytes(image.replace(b'"0"', b'"x"'))

    report = salvage(path, tmp_path / "new.sqlite3")

    assert len(report.lost) == 1
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        (head,) = store.lease(LeaseRequest(("jobs",), limit=9), now=LATER)
        assert head.body == b'"1"'


def test_the_key_of_a_lost_message_is_free_so_that_it_can_be_put_again(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    puts = [
        Put("jobs", b'"%d"' % number, dedupe_key=f"k{number}", dedupe_window=9e5)
        for number in range(3)
    ]
    with SQLiteQueueStore(path, durability="relaxed") as store:
        store.enqueue_many(puts, now=START)
        (done,) = store.lease(LeaseRequest(("jobs",)), now=START + 1)
        store.ack_many([receipt(done)], now=START + 2)
    image = path.read_bytes()
    path.write_bytes(image.replace(b'"1"', b'"x"'))

    salvage(path, tmp_path / "new.sqlite3")

    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        fates = [answer.fate for answer in store.enqueue_many(puts, now=START + 3)]
        assert fates == ["duplicate", "stored", "duplicate"]


def test_a_subscriber_whose_position_is_lost_reads_again_what_is_still_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue.sqlite3"
    of_everything(path)
    lose(path, page_of(path, "subscription"))

    report = salvage(path, tmp_path / "new.sqlite3")

    assert any("'log.b' had read to is lost" in problem for problem in report.problems)
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        assert store.subscribers("log") == ["a", "b"]
        assert store.qsize("log.b", now=LATER) >= 22
        answer = store.enqueue_many([Put("log", b"1")], now=LATER)[0]
        assert len(answer.copies) == 2


def test_publications_whose_subscribers_are_all_lost_are_kept_for_a_new_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path, durability="relaxed") as store:
        store.configure("log", {"fanout": "cursor"}, now=START)
        store.subscribe("log", "a", now=START)
        store.enqueue_many([Put("log", b'"%d"' % number) for number in range(5)], now=START)
    lose(path, *(page_of(path, name) for name in ("queue", "sqlite_autoindex_queue_1")))
    lose(path, page_of(path, "subscription"))

    report = salvage(path, tmp_path / "new.sqlite3")

    assert any("salvaged-1.salvaged has what they would" in line for line in report.problems)
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        leased = store.lease(LeaseRequest(("salvaged-1.salvaged",), limit=9), now=LATER)
        assert [message.body for message in leased] == [b'"%d"' % number for number in range(5)]
        assert store.check().ok


def test_a_time_that_cannot_be_keeps_no_message_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    large(path, 3)
    with raw(path) as db:
        db.execute("UPDATE message SET state = 1, pos = 1e300, due_at = 1e300 WHERE id = 3")
        db.execute("UPDATE message SET pos = 1e300 WHERE id = 4")

    salvage(path, tmp_path / "new.sqlite3")

    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        assert store.qsize("jobs", now=START + 1) == 3
        assert len(store.lease(LeaseRequest(("jobs",), limit=9), now=START + 1)) == 3


def test_a_damaged_word_in_the_description_of_a_table_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    of_everything(path)
    messages = value(path, "SELECT count(*) FROM message")
    image = path.read_bytes()
    damaged = image.replace(b"    crashes    INTEGER", b"    crxshes    INTEGER")
    assert damaged != image
    path.write_bytes(damaged)

    report = salvage(path, tmp_path / "new.sqlite3")

    assert (report.ok, report.messages) == (True, messages)


# --- the -wal -------------------------------------------------------------------------------------
def left_by_a_kill(tmp_path: Path, n: int = 300) -> tuple[Path, list[str]]:
    """A file and its -wal as a killed process leaves them."""
    living, path = tmp_path / "living.sqlite3", tmp_path / "killed.sqlite3"
    with SQLiteQueueStore(living, durability="relaxed") as store:
        ids = fill(store, n // 3)
        with raw(living) as db:
            db.execute("PRAGMA wal_checkpoint(RESTART)")
        for _ in range(2):
            ids += fill(store, n // 3)
        # Nothing is left in the daybook.
        store.queues()
        for ending in ("", "-wal"):
            Path(f"{path}{ending}").write_bytes(Path(f"{living}{ending}").read_bytes())
    return path, ids


def test_what_is_only_in_the_wal_comes_over_and_both_stay_as_they_are(tmp_path: Path) -> None:
    path, ids = left_by_a_kill(tmp_path)
    before = picture(tmp_path)

    report = salvage(path, tmp_path / "new.sqlite3")

    after = picture(tmp_path)
    after.pop("new.sqlite3")
    assert after == before
    assert (report.ok, report.messages) == (True, 300)
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        assert [message.id for message in store.peek("jobs", 1_000, now=LATER)] == ids


def test_a_damaged_wal_gives_the_state_before_the_damage(tmp_path: Path) -> None:
    path, ids = left_by_a_kill(tmp_path)
    wal = bytearray(Path(f"{path}-wal").read_bytes())
    wal[wal.index(b'"50 ')] ^= 1
    Path(f"{path}-wal").write_bytes(wal)

    report = salvage(path, tmp_path / "new.sqlite3")

    assert any("what was committed after" in problem for problem in report.problems)
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        assert [message.id for message in store.peek("jobs", 1_000, now=LATER)] == ids[:100]


# --- whose file, and where to ---------------------------------------------------------------------
@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_file_of_an_older_version_is_salvaged_into_one_of_today(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "queue.sqlite3"
    tables = (Path(__file__).parents[3] / "migration" / f"schema_{version}.sql").read_text()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(tables)
        db.execute("INSERT INTO identity VALUES (0, '00112233445566aa')")
        db.execute("INSERT INTO queue VALUES (1, 'jobs', '{}', 1, NULL)")
        db.execute(
            "INSERT INTO event (seq, at, queue, message, kind, to_state, n, by)"
            " VALUES (2, 1.0, 1, 2, 1, 0, 1, 0)"
        )
        db.execute(
            "INSERT INTO message (id, queue, state, rank, pos, created_at, last, checksum, value)"
            " VALUES (2, 1, 0, 0, 1.0, 1.0, 2, ?, x'31')",
            (seal(checksum(b"1", None), 2, 1),),
        )
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()

    report = salvage(path, tmp_path / "new.sqlite3")

    assert (report.messages, report.problems) == (1, ())

    assert value(tmp_path / "new.sqlite3", "PRAGMA user_version") == SCHEMA_VERSION
    with SQLiteQueueStore(tmp_path / "new.sqlite3") as store:
        (message,) = store.peek("jobs", 9, now=LATER)
        assert (message.id, message.body) == ("00112233445566aa0000000000000002", b"1")


def test_a_migrated_file_is_salvaged(tmp_path: Path) -> None:
    """Its columns are in another order, and rows from before lack those that were added."""
    path = tmp_path / "queue.sqlite3"
    tables = (Path(__file__).parents[3] / "migration" / "schema_1.sql").read_text()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(tables)
        db.execute("INSERT INTO identity VALUES (0, '00112233445566aa')")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.commit()
    of_everything(path)
    assert value(path, "PRAGMA user_version") == SCHEMA_VERSION

    report = salvage(path, tmp_path / "new.sqlite3")

    assert (report.ok, report.messages) == (True, value(path, "SELECT count(*) FROM message"))


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipe (name)")


def newer(path: Path) -> None:
    large(path, 1)
    with raw(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def empty_of_ours(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(schema())
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


REFUSED: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "of another application": (foreign, StoreUnsupported, "another application"),
    "of a newer release": (newer, StoreUnsupported, "newer release"),
    "garbage": (
        lambda path: path.write_bytes(Random(1).randbytes(50_000)),
        StoreCorrupt,
        "nothing of a queue",
    ),
    "empty": (lambda path: path.touch(), StoreCorrupt, "nothing of a queue"),
    "without a queue": (empty_of_ours, StoreCorrupt, "nothing of a queue"),
    "missing": (lambda path: None, StoreReadOnly, "cannot be read"),
    "a directory": (lambda path: path.mkdir(), StoreUnsupported, "no ordinary file"),
    "a pipe": (lambda path: os.mkfifo(path), StoreUnsupported, "no ordinary file"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_holds_nothing_of_ours_is_refused_and_nothing_is_left(
    tmp_path: Path, what: str
) -> None:
    make, error, sentence = REFUSED[what]
    path = tmp_path / "file"
    make(path)
    before = picture(tmp_path)

    with pytest.raises(error, match=sentence):
        salvage(path, tmp_path / "new.sqlite3")

    assert picture(tmp_path) == before


def test_a_file_of_ours_whose_header_is_damaged_is_known_by_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    large(path, 10)
    with raw(path) as db:
        db.execute("PRAGMA application_id = 77")
        db.execute("PRAGMA user_version = 1073741826")

    report = salvage(path, tmp_path / "new.sqlite3")

    assert report.problems == ("the file does not say whose it is, but its tables are ours",)
    assert report.messages == 10


def test_the_target_must_be_new_and_not_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    large(path, 3)
    (tmp_path / "there").write_text("precious")
    before = picture(tmp_path)

    with pytest.raises(WrongType, match="not int"):
        salvage(3, tmp_path / "new")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="exists already"):
        salvage(path, tmp_path / "there")
    with pytest.raises(InvalidArgument, match="belongs to the store itself"):
        salvage(path, path, overwrite=True)

    assert picture(tmp_path) == before
    assert salvage(path, tmp_path / "there", overwrite=True).messages == 3


def test_a_file_that_is_written_meanwhile_is_busy_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "queue.sqlite3"
    large(path, 3)
    bring_over = Rescue.bring_over

    def write_then_bring_over(rescue: Rescue) -> None:
        run_program(
            """
            import sys
            from localqueue import PersistentQueue
            with PersistentQueue("jobs", store_path=sys.argv[1]) as queue:
                queue.put("meanwhile")
            """,
            path,
        )
        bring_over(rescue)

    monkeypatch.setattr(Rescue, "bring_over", write_then_bring_over)

    with pytest.raises(StoreBusy, match="written while it was read"):
        salvage(path, tmp_path / "new.sqlite3")

    assert [found.name for found in tmp_path.iterdir()] == ["queue.sqlite3"]


def test_a_store_salvages_its_own_file_and_goes_on(tmp_path: Path) -> None:
    """The locks of an open file belong to the process: reading it otherwise must not drop them."""
    with SQLiteQueueStore(tmp_path / "queue.sqlite3", durability="relaxed") as store:
        fill(store, 10)
        report = store.salvage(tmp_path / "new.sqlite3")
        assert report.messages == 10
        locks = [line.split()[5] for line in Path("/proc/locks").read_text().splitlines()]
        inode = (tmp_path / "queue.sqlite3").stat().st_ino
        assert any(lock.endswith(f":{inode}") for lock in locks)
        fill(store, 1)
        assert store.check().ok


def test_a_store_that_cannot_be_opened_can_be_salvaged(tmp_path: Path) -> None:
    large(tmp_path / "queue.sqlite3")
    lose(tmp_path / "queue.sqlite3", 0)

    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        with pytest.raises(StoreCorrupt):
            store.queues()
        assert store.salvage(tmp_path / "new.sqlite3").messages == 400


def test_every_statement_compiles_and_is_used() -> None:
    source = "".join(Path(str(module.__file__)).read_text() for module in (mend, noted))
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema())
        for name in mend.MENDS.names:
            statement = getattr(mend.MENDS, name)
            named = dict.fromkeys(re.findall(r":(\w+)", statement), 0)
            unnamed = [0] * (1 if "?1" in statement else statement.count("?"))
            db.execute(f"EXPLAIN {statement}", named or unnamed)
            assert f"MENDS.{name}" in source
