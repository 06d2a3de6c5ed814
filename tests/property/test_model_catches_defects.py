"""The comparison with the model can fail: each defect that is planted in a store is found.

The same seeds pass without a defect in ``test_model.py``, so what is found here is the defect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from localqueue.clock import Now
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import Enqueued, LeaseRequest, Put, StoredMessage
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.daybook.book import Daybook
from localqueue.stores.sqlite.daybook.entries import Acks, Entry, Leases, Puts, size
from localqueue.stores.sqlite.daybook.knowledge import Knowledge
from localqueue.stores.sqlite.daybook.line import Line
from localqueue.stores.sqlite.daybook.posting import _Net
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import (
    ACKED,
    CANCELLED,
    DEAD_LETTERED,
    DROPPED,
    EXPIRED,
    REQUEUED,
)
from localqueue.stores.sqlite.verbs import (
    dead_letters,
    enqueue,
    lease,
    leave,
    liveness,
    log,
    publish,
    records,
    settle,
    sweep,
    topics,
)
from localqueue.stores.sqlite.verbs.capacity import Admitted, Overflowed
from localqueue.stores.sqlite.view import Transaction
from localqueue.testing.model_run import compare_with_model
from localqueue.testing.plain_operations import PlainOperations
from localqueue.testing.side_by_side import Disagreement, SideBySide
from tests.property.test_model import SHORT_GENERATION, in_a_file
from tests.unit.stores.phrases import note_at_once

SEEDS = (1, 2, 3)
OPERATIONS = 8_000

Plant = Callable[[pytest.MonkeyPatch], type[MemoryQueueStore] | None]
DEFECTS: dict[str, Plant] = {}


NOTED_DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def defect(plant: Plant) -> Plant:
    DEFECTS[plant.__name__] = plant
    return plant


def noted_defect(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """One of a daybook, which only a store in a file has."""
    NOTED_DEFECTS[plant.__name__] = plant


def change_statement(patch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    statement = getattr(SQL, name)
    assert old in statement, f"{name} has changed: {statement}"
    patch.setattr(SQL, name, statement.replace(old, new))


def lose_promotions_after(patch: pytest.MonkeyPatch, kind: int) -> None:
    """The next of a key stays held when its head leaves in this way."""
    closing, promote = Transaction.closing, leave._promote_next
    last: list[int] = []

    def note(self: Transaction, kind: int, *arguments: Any, **options: Any) -> int:
        last[:] = [kind]
        return closing(self, kind, *arguments, **options)

    def forget(tx: Transaction, queue: int, key: str) -> None:
        if last != [kind]:
            promote(tx, queue, key)

    patch.setattr(Transaction, "closing", note)
    patch.setattr(leave, "_promote_next", forget)


@defect
def an_acknowledged_head_keeps_holding_its_key(patch: pytest.MonkeyPatch) -> None:
    lose_promotions_after(patch, ACKED)


@defect
def a_dead_lettered_head_keeps_holding_its_key(patch: pytest.MonkeyPatch) -> None:
    lose_promotions_after(patch, DEAD_LETTERED)


@defect
def a_cancelled_head_keeps_holding_its_key(patch: pytest.MonkeyPatch) -> None:
    lose_promotions_after(patch, CANCELLED)


@defect
def an_expired_head_keeps_holding_its_key(patch: pytest.MonkeyPatch) -> None:
    lose_promotions_after(patch, EXPIRED)


@defect
def a_dropped_head_keeps_holding_its_key(patch: pytest.MonkeyPatch) -> None:
    lose_promotions_after(patch, DROPPED)


@defect
def a_head_that_is_removed_when_leased_keeps_holding_its_key(patch: pytest.MonkeyPatch) -> None:
    remove = vars(lease)["remove"]

    def forget(tx: Transaction, row: Any, kind: int, **options: Any) -> None:
        remove(tx, row._replace(key=None), kind, **options)

    patch.setattr(lease, "remove", forget)


@defect
def a_requeued_dead_letter_overtakes_its_key(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "key_is_taken", "state < 4", "state < 0")


@defect
def a_stale_receipt_acts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle, "_may_act", lambda receipt, row: True)


@defect
def messages_that_are_leased_together_have_one_token(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "lease_run", "token = ?1 + id - ?6", "token = ?1")


@defect
def a_receipt_of_one_who_never_leased_acts_on_a_lease(patch: pytest.MonkeyPatch) -> None:
    may_act = settle._may_act
    patch.setattr(
        settle, "_may_act", lambda receipt, row: receipt.token == 0 or may_act(receipt, row)
    )


@defect
def releasing_forgets_the_time_to_live(patch: pytest.MonkeyPatch) -> None:
    put_back = vars(settle)["put_back"]

    def forget(tx: Transaction, row: Any, kind: int, **options: Any) -> None:
        put_back(tx, row._replace(expires_at=None), kind, **options)

    patch.setattr(settle, "put_back", forget)


@defect
def a_late_lease_brings_an_expired_message_back(patch: pytest.MonkeyPatch) -> None:
    put_back = vars(sweep)["put_back"]

    def forget(tx: Transaction, row: Any, kind: int, **options: Any) -> None:
        put_back(tx, row._replace(expires_at=None), kind, **options)

    patch.setattr(sweep, "put_back", forget)


@defect
def drop_oldest_drops_the_newest(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "oldest_of_rank", "m.pos, m.id", "m.pos DESC, m.id DESC")


@defect
def drop_oldest_drops_the_highest_priority(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "lowest_rank", "rank DESC", "rank")


@defect
def the_window_of_a_key_ends_with_its_message(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "release_dedupe", "expires_at IS NULL", "1")


@defect
def a_key_without_a_window_outlives_its_message(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "release_dedupe", "expires_at IS NULL", "0")


@defect
def cancelling_leaves_the_key_taken(patch: pytest.MonkeyPatch) -> None:
    remove = vars(settle)["remove"]

    def forget(tx: Transaction, row: Any, kind: int, **options: Any) -> None:
        kept = row._replace(dedupe_key=None) if kind == CANCELLED else row
        remove(tx, kept, kind, **options)

    patch.setattr(settle, "remove", forget)


@defect
def purging_leaves_the_keys_taken(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "purge_dedupes", "queue = ?", "queue = ? AND 0")


@defect
def purging_leaves_the_statistics_of_workers(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "delete_workers", "queue = ?", "queue = ? AND 0")


@defect
def a_repeated_request_is_a_second_message(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(enqueue, "find_request", lambda tx, queue, request_id: None)


@defect
def conflicting_values_are_duplicates(patch: pytest.MonkeyPatch) -> None:
    find_duplicate = vars(enqueue)["find_duplicate"]

    def forget(tx: Transaction, queue: Any, put: Put, key: str) -> Any:
        return find_duplicate(tx, queue, put._replace(conflict_is_error=False), key)

    patch.setattr(enqueue, "find_duplicate", forget)


@defect
def a_subscriber_skips_a_publication(patch: pytest.MonkeyPatch) -> None:
    move = vars(lease)["move_position"]

    def too_far(tx: Transaction, queue: Any, rest: log.Unread, position: int) -> None:
        move(tx, queue, rest, min(position + 1, rest.end))

    patch.setattr(lease, "move_position", too_far)


@defect
def a_late_subscriber_misses_the_first_publication(patch: pytest.MonkeyPatch) -> None:
    offset_before = topics._offset_before
    patch.setattr(
        topics,
        "_offset_before",
        lambda tx, topic, start, last: min(last, offset_before(tx, topic, start, last) + 1),
    )


@defect
def a_copy_is_missing_for_the_last_subscriber(patch: pytest.MonkeyPatch) -> None:
    copy = publish._copy
    patch.setattr(
        publish,
        "_copy",
        lambda tx, topic, subscribers, put, bounded: copy(
            tx, topic, subscribers[:-1] or subscribers, put, bounded
        ),
    )


@defect
def priority_is_ignored(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "ready_messages", "ORDER BY m.rank, m.pos", "ORDER BY m.pos")
    change_statement(patch, "plain_messages", "ORDER BY rank, pos", "ORDER BY pos")


@defect
def a_released_message_keeps_its_place(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "place_message", "pos = ?", "pos = min(pos, ?)")


@defect
def a_requeued_message_keeps_its_crashes(patch: pytest.MonkeyPatch) -> None:
    put_back = vars(dead_letters)["put_back"]

    def keep(tx: Transaction, row: Any, kind: int, **options: Any) -> None:
        put_back(tx, row, kind, **options)
        assert kind == REQUEUED
        tx.db.execute("UPDATE message SET crashes = ? WHERE id = ?", (row.crashes, row.id))

    patch.setattr(dead_letters, "put_back", keep)


@defect
def a_prefetched_message_is_charged_with_a_crash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweep, "charged", lambda liveness, note: liveness is not None)


@defect
def the_crash_limit_is_one_too_high(patch: pytest.MonkeyPatch) -> None:
    is_at_crash_limit = sweep.is_at_crash_limit
    patch.setattr(
        sweep,
        "is_at_crash_limit",
        lambda settings, crashes: is_at_crash_limit(settings, crashes - 1),
    )


@defect
def everything_that_a_dead_worker_held_is_charged(patch: pytest.MonkeyPatch) -> None:
    end_lease = sweep.end_lease
    patch.setattr(
        liveness,
        "end_lease",
        lambda *args, crashed: end_lease(*args, crashed=True),
    )


@defect
def leases_that_are_held_from_outside_lose_their_notes(patch: pytest.MonkeyPatch) -> None:
    extend_lease = settle.extend_lease
    patch.setattr(
        liveness,
        "extend_lease",
        lambda tx, row, until, note, by: extend_lease(tx, row, until, None, by),
    )


@defect
def a_crash_that_was_seen_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    end_lease = sweep.end_lease
    patch.setattr(
        settle,
        "end_lease",
        lambda *args, crashed, **options: end_lease(*args, crashed=False, **options),
    )


@defect
def what_overflows_stays_in_its_queue(patch: pytest.MonkeyPatch) -> None:
    admit = vars(enqueue)["admit"]

    def stay(tx: Transaction, queue: Any) -> Any:
        admission = admit(tx, queue)
        return Admitted() if isinstance(admission, Overflowed) else admission

    patch.setattr(enqueue, "admit", stay)


@defect
def what_overflows_to_dead_letters_is_lost(patch: pytest.MonkeyPatch) -> None:
    insert = vars(enqueue)["insert"]

    def lose(tx: Transaction, queue: Any, put: Put, *rest: Any, **options: Any) -> Any:
        if options.get("overflowed"):
            return enqueue._drop(tx, queue, put)
        return insert(tx, queue, put, *rest, **options)

    patch.setattr(enqueue, "insert", lose)


@defect
def a_delayed_message_comes_early(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "due_messages", "due_at <= ?", "due_at <= ? + 0.25")


@defect
def a_lease_ends_late(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "ended_leases", "m.due_at <= ?", "m.due_at < ?")


@defect
def nobody_is_told_to_cancel(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "ask_cancel", "cancel = 1", "cancel = 0")


@defect
def records_are_overwritten_whatever_their_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records, "conflicts", lambda tx, changes: [])


@defect
def a_conflict_of_records_does_not_stop_the_settlement(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle, "conflicts", lambda tx, changes: [])
    patch.setattr(settle, "change_records", lambda tx, changes: [])


@defect
def a_boot_charges_crashes(patch: pytest.MonkeyPatch) -> None:
    change_statement(patch, "free_all_leases", "liveness = NULL", "liveness = liveness")


@defect
def a_refused_batch_leaves_its_first_half(patch: pytest.MonkeyPatch) -> type[MemoryQueueStore]:
    class OneByOne(MemoryQueueStore):
        def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> list[Enqueued]:
            answers: list[Enqueued] = []
            for put in puts:
                answers += super().enqueue_many([put], now=now)
            return answers

    return OneByOne


@defect
def a_paused_queue_delivers(patch: pytest.MonkeyPatch) -> type[MemoryQueueStore]:
    class Eager(MemoryQueueStore):
        def lease(self, request: LeaseRequest, *, now: Now) -> Sequence[StoredMessage]:
            paused = [name for name in request.queues if self._is_paused(name)]
            for name in paused:
                self.configure(name, {"paused": False}, now=now)
            leased = super().lease(request, now=now)
            for name in paused:
                self.configure(name, {"paused": True}, now=now)
            return leased

        def _is_paused(self, name: str) -> bool:
            found = self.settings(name)
            return found is not None and found[0].paused

    return Eager


# --- in the daybook of a file -------------------------------------------------------------------
@noted_defect
def a_lease_that_is_noted_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    learn = Knowledge.learn

    def forget(self: Knowledge, entry: Entry) -> None:
        if not isinstance(entry, Leases):
            learn(self, entry)

    patch.setattr(Knowledge, "learn", forget)


@noted_defect
def an_end_of_a_posted_lease_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    learn = Knowledge.learn

    def forget(self: Knowledge, entry: Entry) -> None:
        learn(self, entry)
        self._gone.clear()

    patch.setattr(Knowledge, "learn", forget)


@noted_defect
def what_was_posted_is_expected_once_more(patch: pytest.MonkeyPatch) -> None:
    go_on = Line.go_on

    def keep(self: Line, since: float) -> None:
        late = [*self._late]
        go_on(self, since)
        self._late += late

    patch.setattr(Line, "go_on", keep)


@noted_defect
def a_message_that_is_acknowledged_stays_when_that_is_posted(patch: pytest.MonkeyPatch) -> None:
    ack = _Net._ack

    def keep(self: _Net, entry: Acks) -> None:
        ack(self, entry)
        self.gone.clear()

    patch.setattr(_Net, "_ack", keep)


@noted_defect
def a_put_is_posted_twice(patch: pytest.MonkeyPatch) -> None:
    unposted = Daybook.unposted

    def twice(self: Daybook) -> Sequence[Entry]:
        entries = unposted(self)
        again = [entry for entry in entries if isinstance(entry, Puts)][:1]
        after = sum(map(size, entries))
        return [*entries, *(entry._replace(seq=entries[0].seq + after) for entry in again)]

    patch.setattr(Daybook, "unposted", twice)


@noted_defect
def what_is_noted_comes_before_what_was_there(patch: pytest.MonkeyPatch) -> None:
    def jump_the_queue(self: Line, puts: Puts) -> None:
        self._late.append(puts)
        self._let_in()

    patch.setattr(Line, "add", jump_the_queue)


@noted_defect
def what_is_noted_comes_before_a_row_that_only_the_tables_can_deal_with(
    patch: pytest.MonkeyPatch,
) -> None:
    read = Line._read

    def pass_by(self: Line, wanted: int) -> None:
        read(self, wanted)
        if self._is_blocked:
            self._is_blocked = False
            self._let_in()

    patch.setattr(Line, "_read", pass_by)


@noted_defect
def who_reads_does_not_see_what_is_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Daybook, "is_ahead_of", lambda self, seq: False)


@noted_defect
def a_lease_is_noted_although_others_are_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "is_anything_due", lambda self, now: False)


@pytest.mark.parametrize("name", NOTED_DEFECTS)
def test_the_model_finds_that_of_a_daybook(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_at_once(monkeypatch)
    monkeypatch.setattr(book, "MOST_EVENTS", SHORT_GENERATION)
    NOTED_DEFECTS[name](monkeypatch)
    make = in_a_file(tmp_path)

    def compare() -> None:
        for seed in SEEDS:
            compare_with_model(
                make, seed=seed, operations=OPERATIONS, shrink_seconds=0, kind=PlainOperations
            )

    with pytest.raises(Disagreement) as found:
        compare()

    assert isinstance(found.value.__cause__, Disagreement)


@pytest.mark.parametrize("name", DEFECTS)
def test_the_model_finds_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = DEFECTS[name](monkeypatch) or MemoryQueueStore

    def make() -> SideBySide:
        return SideBySide(kind(), reopen=lambda store: store)

    def compare() -> None:
        for seed in SEEDS:
            compare_with_model(make, seed=seed, operations=OPERATIONS, shrink_seconds=0)

    with pytest.raises(Disagreement) as found:
        compare()

    # Another answer than the model's, not a store that fell over its planted defect.
    assert isinstance(found.value.__cause__, Disagreement)
