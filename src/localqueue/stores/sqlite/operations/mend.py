"""A sound file from rows that were saved: what they imply is made anew, what they miss is told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from importlib.resources import files

from localqueue.checks import LONGEST_DELAY, check_queue_name
from localqueue.errors import LocalQueueError, StoreCorrupt
from localqueue.message import leased_entry
from localqueue.stores.settings import DEFAULT_SETTINGS, QueueSettings
from localqueue.stores.sqlite.identity import Identity, new_bits
from localqueue.stores.sqlite.new_life import begin_new_life, mark_copy
from localqueue.stores.sqlite.operations.invariants import FINDS, is_sound
from localqueue.stores.sqlite.operations.rescue import Rescue
from localqueue.stores.sqlite.sql import SQL, Queries

MENDS = Queries(files("localqueue.stores.sqlite.operations").joinpath("mend.sql").read_text())
LONGEST_GAP = 1_000_000
"""Of publications in a log: a larger one is a damaged number."""


class Mending:
    """Works on the new file, after everything readable was brought over."""

    def __init__(self, db: sqlite3.Connection, rescue: Rescue) -> None:
        self._db = db
        self._rescue = rescue
        self.problems = rescue.problems
        self.lost: dict[tuple[int | None, int], str] = {}
        """Messages and publications by queue and number, and why they are lost."""
        self._newest = self._number(MENDS.newest_number)
        self._now = float(db.execute(MENDS.newest_time).fetchone()[0])
        self.identity = self._mend_identity()

    def mend(self) -> None:
        self._list_ends()
        self._drop_damaged_messages()
        self._mend_queues()
        self._end_leases()
        self._mend_keys()
        self._mend_history()
        self._mend_topics()
        self._mend_dedupe_keys()
        self._mend_journal()
        self._mend_bodies()
        self._begin_counting()

    def _number(self, statement: str, *parameters: object) -> int:
        found = self._db.execute(statement, parameters).fetchone()
        return int(found[0] or 0)

    def _name(self, queue: int) -> str:
        return str(self._db.execute(SQL.queue_by_id, (queue,)).fetchone()[0])

    # --- who and what -------------------------------------------------------------------------
    def _mend_identity(self) -> Identity:
        self._db.execute("DELETE FROM identity WHERE from_seq > ?", (self._newest + 1,))
        rows = self._db.execute(SQL.identities).fetchall()
        try:
            found = Identity(rows)
            if rows[0][0] == 0:
                return found
        except StoreCorrupt:
            pass
        self.problems.append("the file's identity is lost: messages have other ids than before")
        self._db.execute("DELETE FROM identity")
        self._db.execute(SQL.add_identity, (0, new_bits()))
        return Identity(self._db.execute(SQL.identities).fetchall())

    def _drop_damaged_messages(self) -> None:
        damaged: list[tuple[int]] = []
        for number, queue, origin, codec, sealed, headers, value in self._db.execute(
            FINDS.contents
        ):
            if value is None:
                why = "its value is on a page that is damaged"
            elif not is_sound(value, headers, codec, sealed, number, queue, origin or 0):
                why = "value and checksum do not agree"
            else:
                continue
            self.lost[queue, origin or number] = why
            damaged.append((number,))
        self._db.executemany(SQL.delete_message, damaged)
        self._db.execute(MENDS.forget_ended)
        rescue = self._rescue
        for number, (queue_number, why) in rescue.lost_messages.items():
            public = rescue.origins.get(number, number)
            ended = self._db.execute(MENDS.has_ended, (public, queue_number)).fetchone()
            if ended is None:
                self.lost[queue_number, public] = why

    def _mend_queues(self) -> None:
        self._name_lost_queues()
        db = self._db
        db.execute(MENDS.forget_unknown_topics)
        db.execute(MENDS.forget_unknown_subscriptions)
        for number, name, text in db.execute("SELECT id, name, settings FROM queue").fetchall():
            if not _is_name(name):
                name = f"salvaged-{number}"
                db.execute("UPDATE queue SET name = ? WHERE id = ?", (name, number))
            try:
                QueueSettings(**json.loads(text))
            except (LocalQueueError, TypeError, ValueError):
                settings = json.dumps(self._told_settings(number).differences(), sort_keys=True)
                db.execute("UPDATE queue SET settings = ? WHERE id = ?", (settings, number))
                self.problems.append(
                    f"the settings of the queue {name!r} are lost; it has those that the journal"
                    " still tells, and the default for the others"
                )

    def _name_lost_queues(self) -> None:
        """By the index on names; a subscriber after its topic; otherwise by number."""
        db, names = self._db, self._rescue.names
        names |= dict(db.execute(SQL.queue_names).fetchall())
        for (number,) in db.execute(MENDS.missing_queues).fetchall():
            if number not in names:
                names[number] = f"salvaged-{number}"
                found = db.execute(SQL.find_subscription, (number,)).fetchone()
                if found is not None:
                    names[number] = f"{names.get(found[0], f'salvaged-{found[0]}')}.{found[1]}"
        for number, name in names.items():
            if db.execute(MENDS.has_queue, (number,)).fetchone() is None:
                taken = {name for _, name in db.execute(SQL.queue_names)}
                unique = f"salvaged-{number}" if name in taken else name
                db.execute(MENDS.add_queue, (number, unique, "not known"))

    def _told_settings(self, number: int) -> QueueSettings:
        settings = DEFAULT_SETTINGS
        for (detail,) in self._db.execute(MENDS.configurations, (number,)):
            try:
                settings = settings.changed(json.loads(detail))
            except (LocalQueueError, TypeError, ValueError):
                continue
        only_copies = self._db.execute(MENDS.guess_fanout, (number,)).fetchone()[0]
        if settings.fanout is None and only_copies is not None:
            settings = settings.changed({"fanout": "copy" if only_copies else "cursor"})
        return settings

    # --- messages -----------------------------------------------------------------------------
    def _end_leases(self) -> None:
        """Back to waiting, with the attempt in the history; nobody is charged."""
        for number, token, leased_at, attempts, worker in self._db.execute(MENDS.leases).fetchall():
            began = leased_entry(leased_at, attempts, worker)
            ended = {**began, "type": "lease_expired", "at": max(self._now, leased_at)}
            self._db.execute(MENDS.add_attempt, (number, token, json.dumps([began, ended])))
        self._db.execute(MENDS.settle_states, {"newest": self._newest})
        latest = self._now + LONGEST_DELAY
        self._db.execute(MENDS.forget_impossible_times, {"now": self._now, "latest": latest})

    def _mend_keys(self) -> None:
        self._db.execute(MENDS.hold_the_others)
        self._db.execute(MENDS.promote_heads, {"now": self._now})

    def _mend_history(self) -> None:
        damaged: list[tuple[int, int]] = []
        for message, seq, text in self._db.execute(FINDS.entries):
            try:
                [dict(entry) for entry in json.loads(text)]
            except (TypeError, ValueError):
                damaged.append((message, seq))
        self._db.executemany("DELETE FROM attempt WHERE message = ? AND seq = ?", damaged)
        self._db.execute(MENDS.forget_attempts)
        self._db.execute(MENDS.count_attempts)

    # --- topics -------------------------------------------------------------------------------
    def _mend_topics(self) -> None:
        db = self._db
        self._drop_damaged_publications()
        told = dict(db.execute(MENDS.told_ends).fetchall())
        for number, name, topic in db.execute(MENDS.lost_subscriptions).fetchall():
            self._subscribe_again(number, name, topic)
        for number, name in db.execute(MENDS.topics_without_readers).fetchall():
            self._add_reader(number, name)
        db.execute(MENDS.name_topics)
        db.execute(MENDS.forget_skipped)
        db.execute("DELETE FROM topic")
        for (topic,) in db.execute(MENDS.topics).fetchall():
            self._mend_log(topic, told.get(topic, 0))

    def _drop_damaged_publications(self) -> None:
        db = self._db
        damaged: list[tuple[int, int]] = []
        for topic, offset, seq, codec, sealed, headers, value in db.execute(
            FINDS.published_contents
        ):
            if value is None:
                why = "its value is on a page that is damaged"
            elif not is_sound(value, headers, codec, sealed, seq, topic):
                why = "value and checksum do not agree"
            else:
                continue
            self.lost[topic, seq] = why
            damaged.append((topic, offset))
        db.executemany(MENDS.delete_publication, damaged)

    def _subscribe_again(self, number: int, name: str, topic: int) -> None:
        """From the oldest publication on that is still there, but for those that it has."""
        first = self._db.execute(MENDS.first_offset, (topic,)).fetchone()[0]
        last = self._number(MENDS.last_offset, topic)
        position = last if first is None else first - 1
        (settings,) = self._db.execute(
            "SELECT settings FROM queue WHERE id = ?", (topic,)
        ).fetchone()
        until = last if json.loads(settings).get("fanout") == "copy" else None
        subscriber = name.rpartition(".")[2]
        self._db.execute(MENDS.add_subscription, (number, topic, subscriber, position, until))
        self._db.execute(SQL.skip_what_it_has, (number, topic, position))
        self.problems.append(
            f"where the subscriber {name!r} had read to is lost; it reads again what is still there"
        )

    def _add_reader(self, topic: int, name: str) -> None:
        """Its subscribers are all lost, and what was published would be read by nobody."""
        number = self._number(MENDS.next_queue)
        self._db.execute(MENDS.add_queue, (number, f"{name}.salvaged", "{}"))
        first = self._number(MENDS.first_offset, topic)
        self._db.execute(MENDS.add_subscription, (number, topic, "salvaged", first - 1, None))
        self.problems.append(
            f"the subscribers of the topic {name!r} are lost; {name}.salvaged has what they would"
            " have read"
        )

    def _mend_log(self, topic: int, told: int) -> None:
        """Every offset that a subscriber will come to is there, or skipped."""
        db = self._db
        offsets = [offset for (offset,) in db.execute(MENDS.offsets, (topic,))]
        while len(offsets) > 1 and offsets[-1] - offsets[-2] > LONGEST_GAP:
            db.execute(MENDS.delete_publication, (topic, offsets.pop()))
        last = self._number(MENDS.last_offset, topic)
        if offsets and last - offsets[-1] > LONGEST_GAP:
            last = offsets[-1]
            db.execute(MENDS.cut_positions, {"topic": topic, "last": last})
        db.execute(MENDS.write_topic, (topic, last))
        there, gone = set(offsets), set[int]()
        for queue, position, end in db.execute(
            MENDS.subscribers, {"topic": topic, "last": last}
        ).fetchall():
            first = next((offset for offset in offsets if offset > position), end + 1)
            db.execute(MENDS.move, (max(position, min(first - 1, end)), queue))
            missing = [n for n in range(first, end + 1) if n not in there]
            db.executemany(MENDS.skip, [(queue, offset) for offset in missing])
            gone.update(missing, range(position + 1, min(first, position + LONGEST_GAP)))
        gone.update(range(last + 1, min(told, last + LONGEST_GAP) + 1))
        if gone:
            self.problems.append(
                f"{len(gone):,} publications of the topic {self._name(topic)!r} are lost before all"
                " its subscribers had read them"
            )
        numbers = self._rescue.publications
        for offset in gone:
            if (topic, offset) in numbers:
                number = numbers[topic, offset]
                self.lost.setdefault((topic, number), "its row is on a page that is damaged")

    # --- what refers to messages --------------------------------------------------------------
    def _mend_dedupe_keys(self) -> None:
        self._db.execute(MENDS.forget_foreign_keys, {"newest": self._newest})
        self._db.execute(MENDS.forget_keys_of_nobody)
        self._db.execute(MENDS.forget_keys_of_others)
        if self._rescue.is_missing_messages or self.lost:
            self._db.execute(MENDS.forget_doubtful_keys)

    def _mend_bodies(self) -> None:
        self._db.execute(MENDS.forget_bodies_of_events)
        self._db.execute(MENDS.count_bodies)
        self._db.execute(MENDS.forget_bodies)

    def _mend_journal(self) -> None:
        db, newest = self._db, {"newest": self._newest}
        db.execute(MENDS.forget_readers, newest)
        db.execute(MENDS.forget_workers)
        db.execute(MENDS.forget_kept)
        db.execute(MENDS.mend_first_events)
        db.execute(MENDS.mend_published_events)
        lost = max(
            self._rescue.last_lost_event(self._newest), self._number(MENDS.last_unknown_event)
        )
        db.execute(MENDS.forget_unknown_events)
        for queue, n, scanned in db.execute(MENDS.kept_events).fetchall():
            counts = {"queue": queue, "n": n, "scanned": scanned, "lost": lost}
            db.execute(MENDS.keep, counts | newest)
        trimmed = {"trimmed": self._number(MENDS.trimmed)}
        db.execute(MENDS.mend_chains, newest)
        db.execute(MENDS.mend_missing_ends, trimmed)
        db.execute(MENDS.cut_chains)
        db.execute(MENDS.cut_missing, trimmed)
        # Some events are of another message now, or gone.
        self._list_ends()
        db.execute(SQL.list_all_spans, (0, self._newest))

    def _list_ends(self) -> None:
        self._db.execute(MENDS.forget_ends)
        self._db.execute(MENDS.list_ends)

    def _begin_counting(self) -> None:
        """All that is there is folded; numbers go on where nobody can have used them."""
        db = self._db
        db.execute(MENDS.count_states)
        db.execute(MENDS.write_marks, (self._newest,))
        mark_copy(db, self._newest)
        begin_new_life(db)

    def named(self) -> Iterator[tuple[str | None, str, str]]:
        """What is lost: the queue's name, the public id, and why."""
        names = dict(self._db.execute(SQL.queue_names).fetchall())
        for (queue, number), why in sorted(self.lost.items(), key=lambda item: item[0][1]):
            public = self._rescue.aliases.get(number) or self.identity.public(number)
            yield (None if queue is None else names.get(queue)), public, why


def _is_name(name: str) -> bool:
    try:
        return bool(check_queue_name(name))
    except LocalQueueError:
        return False
