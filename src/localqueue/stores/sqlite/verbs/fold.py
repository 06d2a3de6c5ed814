"""Folding the journal into counters, and trimming what is old; in slices inside ordinary writes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import BY_SWEEP, COUNTED, STATE_NAMES
from localqueue.stores.sqlite.verbs.bodies import drop_body
from localqueue.stores.sqlite.verbs.log import trim_log
from localqueue.stores.sqlite.view import Transaction

EVERY = 2048
WINDOW = 8 * EVERY
"""How far the trimmer looks for one queue: more than is written between two folds."""
MANY = 32
"""A queue that has one of so many events has one span for a whole fold: passing the others costs
less than reading its own."""


def fold_sometimes(tx: Transaction) -> None:
    """At the end of a write transaction: fold when enough has happened since the last time."""
    # One that wrote no event has no time of its own, and nothing to count.
    if tx.seq > tx.start_seq and tx.seq - tx.file.folded >= EVERY:
        tx.folded = _mark(tx, "fold")
        if tx.seq - tx.folded >= EVERY:
            # A call that has no use for the time may be given none.
            tx.now = max(tx.now, tx.file.newest)
            fold(tx)


def fold(tx: Transaction) -> None:
    """Add all events so far to the counters, tell each changed queue's counts, and trim."""
    tx.finish()
    folded, upto = _mark(tx, "fold"), tx.seq
    tally = tx.since_fold(folded)
    tx.db.executemany(SQL.add_to_counter, [(*key, n) for key, n in tally.moves.items() if n])
    tx.db.executemany(SQL.add_to_worker, [(*key, n) for key, n in tally.leases.items()])
    tx.db.executemany(SQL.add_to_kept, list(tally.events.items()))
    tx.db.execute(SQL.write_mark, (upto, "fold"))
    tx.fold_up_to_here()
    for queue in sorted({queue for queue, _ in tally.moves}):
        counts = dict(tx.db.execute(SQL.queue_counters, (queue,)).fetchall())
        detail = {STATE_NAMES[state]: counts.get(state, 0) for state in range(5)}
        tx.event(COUNTED, queue, by=BY_SWEEP, detail=detail)
    tx.finish()
    _list_spans(tx, tally.events, folded, upto)
    trim(tx, upto, folded)
    # Only now: what was trimmed at once is never listed.
    tx.db.execute(SQL.list_ends, (folded, upto))


def _list_spans(tx: Transaction, written: Mapping[int, int], folded: int, upto: int) -> None:
    """Say where the events since the last fold are; ``written`` is how many each queue has."""
    spanned = _mark(tx, "span")
    if spanned < folded:
        # The former version, which has the file open since before it was migrated, knows no spans.
        tx.db.execute(SQL.list_all_spans, (spanned, folded))
    # Never across a leap, which the trimmer would not come to the end of: nobody has many there.
    many = [queue for queue, n in written.items() if MANY * n >= upto - folded > 0]
    few = written.keys() - many
    for queue in many:
        tx.db.execute(SQL.list_span, (folded, upto, queue))
    if few:
        tx.db.execute(SQL.list_spans, (folded, upto, json.dumps(sorted(few))))
    tx.db.execute(SQL.write_mark, (upto, "span"))


def trim(tx: Transaction, upto: int, listed: int) -> None:
    """Let go of events that no policy and no reader keeps, up to the fold.

    Each queue from its own oldest event on, so that what a queue keeps is always its newest; in
    windows, so that no call pays for a long journal. ``listed`` is up to where ends of lives are.
    """
    readers = [(seq, tx.now - max_age) for _, seq, _, max_age in tx.db.execute(SQL.readers)]
    first = tx.db.execute(SQL.first_event).fetchone()
    for queue, _, text, n, _, scanned in tx.db.execute(SQL.kept).fetchall():
        settings = tx.file.parse_settings(text)
        oldest = tx.now - settings.journal_max_age if settings.journal else tx.now
        surplus = n - settings.journal_max_rows
        if surplus > 0 or (first is not None and first[1] <= oldest):
            _trim_queue(tx, queue, scanned, upto, listed, oldest, surplus, readers)
            if tx.db.execute(SQL.find_topic, (queue,)).fetchone():
                trim_log(tx, queue)


def _trim_queue(
    tx: Transaction,
    queue: int,
    scanned: int,
    upto: int,
    listed: int,
    oldest: float,
    surplus: int,
    readers: list[tuple[int, float]],
) -> None:
    """Trim one queue until the first event that stays."""
    db = tx.db
    span = db.execute(SQL.first_span, (queue, scanned)).fetchone()
    if span is None:
        return
    # What others have written before it is passed in one step, and so is a copied file's leap.
    scanned = max(scanned, span[0] - 1)
    end = min(upto - 1, scanned + WINDOW)
    window = (scanned, end, queue)
    # The rows stay in SQLite: reading them one by one costs thrice as much as removing them.
    within = db.execute(SQL.first_within, (*window, max(0, surplus))).fetchone()
    wanted = readers if within is None else [*readers, (within[0] - 1, oldest)]
    kept = [db.execute(SQL.first_to_keep, (*window, *since)).fetchone() for since in wanted]
    if any(kept):
        end = min(seq for (seq,) in filter(None, kept)) - 1
    window = (scanned, end, queue)
    newest = db.execute(SQL.last_to_trim, window).fetchone()
    gone = 0
    if newest is not None:
        for (body,) in db.execute(SQL.bodies_to_trim, window).fetchall():
            drop_body(tx, body)
        db.execute(SQL.forget_ends, (scanned, min(end, listed), queue))
        gone = db.execute(SQL.trim_events, window).rowcount
        db.execute(SQL.forget_spans, (queue, end))
    db.execute(SQL.trim_kept, (gone, newest[0] if newest else 0, end, queue))


def _mark(tx: Transaction, name: str) -> int:
    return int(tx.db.execute(SQL.read_mark, (name,)).fetchone()[0])
