"""Recording what workers do to a file, and cutting the power at moments of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from localqueue.errors import StoreError
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.daybook.file import START
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.disk import Disk, write_files
from tests.faults.nursery import Nursery
from tests.faults.records import CREATE, LOST, MARK, WRITE, Record, read_records
from tests.faults.soundness import COUNTED, Contents, Unsound, check_file, number_of

NAME = "queue.sqlite3"


class Lost(AssertionError):
    """Something that was answered is not there after the cut."""


class NoPrefix(AssertionError):
    """What is there never was all there was."""


class Recording(NamedTuple):
    """What some workers did to a file, and what is in it in the end."""

    folder: Path
    records: list[Record]
    contents: Contents

    def marks(self, verb: str) -> Iterator[tuple[int, Any]]:
        """What was answered or failed, with its place among the records."""
        for place, (kind, *mark) in enumerate(self.records):
            if kind == MARK and mark[0] == verb:
                yield place, mark[1]

    def answered(self, durability: str | None = None) -> list[tuple[int, int]]:
        """For each answer that has to last its place, and the newest event that it speaks of.

        A lease does not: the boot after a power cut ends it anyway. With a durability: only the
        answers of workers that have it.
        """
        ended = {event.prev: event.seq for event in self.contents.events}
        answers = [(place, max(number_of(id) for id, _ in put)) for place, put in self.marks("put")]
        answers += [
            (place, max(ended[token] for token in tokens))
            for place, tokens in self.marks("settled")
        ]
        return sorted(
            (place, seq)
            for place, seq in answers
            if durability is None or self.records[place][3] == durability
        )

    def noted(self) -> int:
        """How often something was written into a daybook, behind its head."""
        books = {
            inode
            for kind, *rest in self.records
            if kind == CREATE
            for name, inode in [rest]
            if name.endswith("-daybook")
        }
        return sum(
            kind == WRITE and rest[0] in books and rest[1] >= START for kind, *rest in self.records
        )

    def values(self) -> dict[int, Any]:
        return {number_of(id): value for _, put in self.marks("put") for id, value in put}

    def failed_at(self) -> int:
        """Where the disk failed for the first time."""
        return next(place for place, record in enumerate(self.records) if record[0] == LOST)


def record(folder: Path, work: str, arguments: Sequence[Sequence[Any]]) -> Recording:
    """Let workers work on one file at the same time, one for each row of arguments."""
    path, log = folder / NAME, folder / "log"
    with Nursery() as nursery:
        pids = [nursery.start(work, str(path), str(log), *given) for given in arguments]
        assert [nursery.wait(pid) for pid in pids] == [0] * len(pids)
    with SQLiteQueueStore(path) as store:
        # Posts what they have left in the daybook.
        store.queues()
    return Recording(folder, read_records(log), check_file(path))


def cut(
    recording: Recording,
    times: int,
    *,
    answers_stand: bool,
    durability: str | None = None,
    seed: int = 1,
    since: int = 0,
    look: Callable[[Path, int], None] | None = None,
) -> None:
    """Cut the power at random moments, often right after an answer, and look what is there.

    ``durability``: that of the workers whose answers have to stand. ``look`` is given the file of
    each cut, when it was found sound, and the moment.
    """
    chance = random.Random(seed)
    answered = recording.answered(durability)
    answers = [place for place, _ in answered if place >= since]
    moments = [chance.randrange(since, len(recording.records)) for _ in range(times // 2)]
    moments += [chance.choice(answers) for _ in range(times - len(moments))]
    values, disk, happened, owed = recording.values(), Disk(chance), 0, 0
    for moment in sorted(moments):
        for one in recording.records[happened : moment + 1]:
            disk.happen(one)
        owed = max([owed, *(seq for place, seq in answered if happened <= place <= moment)])
        happened = moment + 1
        folder = recording.folder / "cut"
        folder.mkdir()
        try:
            write_files(folder, disk.after_cut())
            _check(recording, folder / NAME, owed if answers_stand else 0, values)
            if look is not None:
                look(folder / NAME, moment)
        finally:
            shutil.rmtree(folder)


def _check(recording: Recording, path: Path, owed: int, values: dict[int, Any]) -> None:
    if not path.exists():
        if owed:
            raise Lost(f"the file itself is gone, with {owed} events")
        return
    try:
        with SQLiteQueueStore(path) as store:
            queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
            stored = {number_of(message.id): message.value for message in queue.peek(10_000)}
    except StoreError as error:
        raise Unsound(f"it cannot be opened: {error}") from error
    events = check_file(path).events
    if events and events[-1].kind == COUNTED and events[-1] not in recording.contents.events:
        # Whoever posts the daybook after the cut folds the journal when it is time for that.
        events = events[:-1]
    found = len(events)
    if events != recording.contents.events[:found]:
        raise NoPrefix(f"the {found} events that are there are not the first that were written")
    for number, value in stored.items():
        if value != values.get(number, value):
            raise NoPrefix(f"message {number} has another value than was put")
    if found < owed:
        raise Lost(f"{owed} events were answered for, {found} are there")
