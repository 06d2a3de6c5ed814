"""Folding the journal into counters, and trimming what is old; in slices inside ordinary writes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable

from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import BY_SWEEP, COUNTED, STATE_NAMES
from localqueue.stores.sqlite.verbs.bodies import drop_body
from localqueue.stores.sqlite.verbs.log import trim_log
from localqueue.stores.sqlite.view import Transaction

EVERY = 2048
TRIM_SLICE = 2 * EVERY
"""More than is written between two folds, so that trimming keeps up."""


def fold_sometimes(tx: Transaction) -> None:
    """At the end of a write transaction: fold when enough has happened since the last time."""
    if tx.seq - tx.file.folded >= EVERY:
        tx.file.folded = _folded(tx)
        if tx.seq - tx.file.folded >= EVERY:
            fold(tx)


def fold(tx: Transaction) -> None:
    """Add all events so far to the counters, tell each changed queue's counts, and trim."""
    tx.finish()
    since, upto = _folded(tx), tx.seq
    rows = tx.db.execute(SQL.fold_tail, (since, upto)).fetchall()
    states: Counter[tuple[int, int]] = Counter()
    leases: Counter[tuple[int, str]] = Counter()
    kept: Counter[int] = Counter()
    for queue, left, entered, worker, n, events in rows:
        kept[queue] += events
        if left is not None:
            states[queue, left] -= n
        if entered is not None:
            states[queue, entered] += n
        if worker is not None:
            leases[queue, worker] += n
    tx.db.executemany(SQL.add_to_counter, [(*key, n) for key, n in states.items() if n])
    tx.db.executemany(SQL.add_to_worker, [(*key, n) for key, n in leases.items()])
    tx.db.executemany(SQL.add_to_kept, list(kept.items()))
    tx.db.execute(SQL.write_mark, (upto, "fold"))
    tx.file.folded = upto
    for queue in sorted({queue for queue, _ in states}):
        counts = dict(tx.db.execute(SQL.queue_counters, (queue,)).fetchall())
        detail = {STATE_NAMES[state]: counts.get(state, 0) for state in range(5)}
        tx.event(COUNTED, queue, by=BY_SWEEP, detail=detail)
    tx.finish()
    trim(tx, upto)


def trim(tx: Transaction, upto: int) -> None:
    """Let go of a slice of events that no policy and no reader keeps, up to the fold.

    Queues keep their events for different times, so what stays is passed over, and the next slice
    goes on behind it until it meets events that are too young for everybody; then from the start.
    """
    policies = _Policies(tx)
    if not policies.anything_to_trim(tx):
        return
    after = tx.db.execute(SQL.read_mark, ("trim",)).fetchone()[0]
    rows = tx.db.execute(SQL.trim_candidates, (after, upto, TRIM_SLICE)).fetchall()
    gone = [row for row in rows if policies.lets_go(*row[:3])]
    _delete(tx, gone)
    reached_young = not rows or len(rows) < TRIM_SLICE or policies.is_young(rows[-1][2])
    tx.db.execute(SQL.write_mark, (0 if reached_young else rows[-1][0], "trim"))


class _Policies:
    """Which events may go now."""

    def __init__(self, tx: Transaction) -> None:
        self.now = tx.now
        self.newest = tx.seq
        self.surplus: dict[int, int] = {}
        self.age: dict[int, float] = {}
        for queue, _, settings_text, n, _ in tx.db.execute(SQL.kept).fetchall():
            settings = tx.file.parse_settings(settings_text)
            self.age[queue] = settings.journal_max_age if settings.journal else 0.0
            self.surplus[queue] = n - settings.journal_max_rows
        self.readers = [
            (seq, tx.now - max_age) for _, seq, _, max_age in tx.db.execute(SQL.readers)
        ]

    def anything_to_trim(self, tx: Transaction) -> bool:
        if any(age == 0.0 for age in self.age.values()) or any(
            surplus > 0 for surplus in self.surplus.values()
        ):
            return True
        first = tx.db.execute(SQL.first_event).fetchone()
        return first is not None and not self.is_young(first[1])

    def is_young(self, at: float) -> bool:
        """Whether no queue lets go of an event of this time because of its age."""
        return at > self.now - min(self.age.values(), default=0.0) and not any(
            surplus > 0 for surplus in self.surplus.values()
        )

    def lets_go(self, seq: int, queue: int, at: float) -> bool:
        if seq >= self.newest or any(
            seq > position and at > oldest for position, oldest in self.readers
        ):
            return False
        if at <= self.now - self.age.get(queue, 0.0):
            return True
        if self.surplus.get(queue, 0) > 0:
            self.surplus[queue] -= 1
            return True
        return False


def _delete(tx: Transaction, rows: Iterable[tuple[int, int, float, int | None]]) -> None:
    gone: defaultdict[int, list[int]] = defaultdict(list)
    with_bodies: set[int] = set()
    for seq, queue, _, body in rows:
        gone[queue].append(seq)
        if body is not None:
            drop_body(tx, body)
            with_bodies.add(queue)
    for queue, seqs in gone.items():
        tx.db.execute(SQL.delete_events, (json.dumps(seqs),))
        tx.db.execute(SQL.trim_kept, (len(seqs), seqs[-1], queue))
    for queue in with_bodies:
        if tx.db.execute(SQL.find_topic, (queue,)).fetchone():
            trim_log(tx, queue)


def _folded(tx: Transaction) -> int:
    return int(tx.db.execute(SQL.read_mark, ("fold",)).fetchone()[0])
