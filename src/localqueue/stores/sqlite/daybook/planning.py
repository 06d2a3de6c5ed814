"""Whether calls can be noted, and how: decided before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from localqueue.clock import read_now
from localqueue.message import Receipt, State
from localqueue.stores.alike import AlikeAnswers
from localqueue.stores.leased import LeasedTogether
from localqueue.stores.protocol import (
    PREFETCHED,
    Fate,
    LeaseRequest,
    Put,
    Settled,
    StoredMessage,
    new_enqueued,
    new_message,
)
from localqueue.stores.sqlite.daybook.entries import Acks, Entry, Leases, Puts, encode_call, size
from localqueue.stores.sqlite.daybook.knowledge import Knowledge
from localqueue.stores.sqlite.group_commit import Call, neighbours
from localqueue.stores.sqlite.verbs.alike import are_alike
from localqueue.stores.sqlite.verbs.joined import Ack, Enqueue, Lease, SettleAndLease
from localqueue.stores.sqlite.verbs.plain import asks_for_nothing
from localqueue.stores.sqlite.view import FileState

LARGEST_BATCH = 256
"""Messages of one call: more are better off in a transaction of their own."""
_NOTED = frozenset((Enqueue, Lease, Ack, SettleAndLease))


def may_be_noted(call: Call[Any]) -> bool:
    """Whether it is worth a look; most of what else is asked for is not."""
    return type(call.verb) in _NOTED


class Noting:
    """How calls can be noted: what will stand in the book, and what each is answered then."""

    __slots__ = ("answers", "checksum", "data", "ends", "entries", "place", "ready", "room")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.ends: list[int] = []
        """How many entries there are up to each call."""
        self.answers: list[Any] = []
        self.ready: set[int] = set()
        """Queues that will have something to lease."""
        self.room: set[int] = set()
        """Queues that will have room."""
        self.data = b""
        self.checksum = 0
        """Of the last entry."""
        self.place = 0

    def encode(self, before: int, *, lasts: bool) -> None:
        """Behind an entry with this checksum, or at the beginning of a book with this salt."""
        entries, ends = self.entries, self.ends
        if len(ends) == 1:
            self.checksum, self.data = encode_call(entries, before, lasts=lasts)
            return
        parts = []
        for first, end in pairwise((0, *ends)):
            if first < end:
                before, data = encode_call(entries[first:end], before, lasts=lasts)
                parts.append(data)
        self.checksum, self.data = before, b"".join(parts)

    def size(self) -> int:
        """How many events it is."""
        entries = self.entries
        return len(entries[0][3]) if len(entries) == 1 else sum(map(size, entries))

    def leased_of(self, queue: int) -> int:
        """How many messages of the queue the calls before take."""
        if not self.entries:
            return 0
        return sum([size(e) for e in self.entries if type(e) is Leases and e.queue == queue])

    def ends_one_of(self, acks: Sequence[Acks]) -> bool:
        """Whether a call before ends one of these leases."""
        if not self.entries:
            return False
        ended = {token for entry in self.entries if type(entry) is Acks for token in entry.tokens}
        return not ended.isdisjoint(token for entry in acks for token in entry.tokens)


class Planner:
    """For the calls of one group, one after the other."""

    __slots__ = ("_identity", "_knowledge", "_queues", "noting", "now")

    def __init__(self, state: FileState, knowledge: Knowledge, newest: float) -> None:
        """``newest`` is the time of the newest entry: none comes before another one."""
        self._identity = state.identity
        self._queues = state.known[1]
        self._knowledge = knowledge
        self.now = newest
        self.noting = Noting()

    def plan(self, calls: Sequence[Call[Any]], seq: int, until: float) -> Noting | None:
        """How to note them all, from this event on; None when they are for the tables."""
        for alike in (calls,) if len(calls) == 1 else neighbours(calls):
            verb = alike[0].verb
            kind = type(verb)
            if kind not in _NOTED:
                return None
            now = read_now(alike[0].now)
            if not self.now <= now < until:
                return None
            self.now = now
            if len(alike) > 1:
                n = self._together([call.verb for call in alike], seq)
            elif kind is Enqueue:
                n = self._puts(verb.puts, seq)  # type: ignore[attr-defined]
            elif kind is Lease:
                n = self._lease(verb.request, seq)  # type: ignore[attr-defined]
            elif kind is Ack:
                n = self._acks(verb.receipts, seq)  # type: ignore[attr-defined]
                self.noting.answers.append([True] * (n or 0))
            else:
                n = self._both(verb, seq)  # type: ignore[arg-type]
            if n is None:
                return None
            seq += n
            self.noting.ends.append(len(self.noting.entries))
        return self.noting

    def _together(self, verbs: Sequence[Any], seq: int) -> int | None:
        """Calls that are alike: sixteen puts are one entry."""
        answers = self.noting.answers
        match verbs[0]:
            case Enqueue():
                n = self._puts([verb.puts[0] for verb in verbs], seq)
                answers += [] if n is None else [(answer,) for answer in answers.pop()]
            case Ack():
                n = self._acks([receipt for verb in verbs for receipt in verb.receipts], seq)
                answers += [[True] * len(verb.receipts) for verb in verbs]
            case Lease(request=request):
                n = self._lease(replace(request, limit=len(verbs)), seq)
                leased = [] if n is None else answers.pop()
                answers += [leased[place : place + 1] for place in range(len(verbs))]
            case _:
                return None
        return n

    def _puts(self, puts: Sequence[Put], seq: int) -> int | None:
        """How many events it is; None when it cannot be noted."""
        if not 0 < len(puts) <= LARGEST_BATCH:
            return None
        name = puts[0].queue
        queue = self._queues.get(name)
        if queue is None or not asks_for_nothing(queue, puts[0]):
            return None
        identity, now, noting = self._identity, self.now, self.noting
        if len(puts) == 1:
            body = puts[0].body
            if type(body) is not bytes:
                # Something that is changed later would be posted so.
                return None
            message = _stored(identity.public(seq), name, body, now)
            noting.entries.append(Puts(seq, now, queue.id, (body,)))
            noting.answers.append((new_enqueued((message, Fate.STORED, queue.version, 0.0, ())),))
            noting.ready.add(queue.id)
            return 1
        if not are_alike(queue, puts, True):
            return None
        bodies = [put.body for put in puts]
        if set(map(type, bodies)) != {bytes}:
            return None
        noting.entries.append(Puts(seq, now, queue.id, bodies))
        ids, like = identity.publics(range(seq, seq + len(puts))), _stored("", name, b"", now)
        noting.answers.append(AlikeAnswers(ids, bodies, like, queue.version))
        noting.ready.add(queue.id)
        return len(bodies)

    def _lease(self, request: LeaseRequest, seq: int) -> int | None:
        limit = request.limit
        if len(request.queues) != 1 or not 0 < limit <= LARGEST_BATCH:
            return None
        queue = self._queues.get(request.queues[0])
        if (
            queue is None
            or queue.topic is not None
            or queue.settings.paused
            or queue.settings.ordering == "per-key"
            or (request.codecs is not None and "json" not in request.codecs)
        ):
            return None
        now, noting = self.now, self.noting
        line = self._knowledge.line(queue.id)
        if self._knowledge.is_anything_due(line, now):
            return None
        found = line.first(limit, noting.leased_of(queue.id))
        if found is None:
            return None
        numbers, ranks, positions, created_at, bodies = found
        n = len(numbers)
        if n < limit and queue.id in noting.ready:
            # A call before it in the group puts what it is to find.
            return None
        if not n:
            # Nothing is due either: a sweep would find nothing more.
            noting.answers.append([])
            return 0
        worker, until = request.worker, now + request.timeout
        answer = LeasedTogether(
            queue.name, worker, now, until, seq, self._identity.publics(numbers), bodies,
            ranks, created_at, positions,
        )  # fmt: skip
        note = PREFETCHED if request.prefetched else None
        noting.entries.append(
            Leases(seq, now, queue.id, numbers, until, worker, request.liveness, note)
        )
        noting.answers.append(answer)
        if queue.settings.maxsize:
            noting.room.add(queue.id)
        if not request.remove:
            return n
        tokens = range(seq, seq + n)
        acks = Acks(seq + n, now, queue.id, numbers, tokens, created_at, positions, now, worker)
        noting.entries.append(acks)
        return 2 * n

    def _acks(self, receipts: Sequence[Receipt], seq: int) -> int | None:
        if not 0 < len(receipts) <= LARGEST_BATCH:
            return None
        if len(receipts) == 1:
            acks = self._ack_one(receipts[0], seq)
        else:
            acks = self._ack_many(receipts, seq)
        if acks is None or self.noting.ends_one_of(acks):
            return None
        self.noting.entries += acks
        return len(receipts)

    def _ack_one(self, receipt: Receipt, seq: int) -> Sequence[Acks] | None:
        name, public, token = receipt
        number = self._identity.seq(public)
        queue = self._queues.get(name)
        if number is None or queue is None:
            return None
        run = self._knowledge.leases_of(queue.id, (number,)).get(number)
        if run is None or run.queue != queue.id:
            return None
        _, numbers, first, created_at, positions, leased_at, worker = run
        place = 0 if len(numbers) == 1 else numbers.index(number)
        if token != first + place:
            return None
        return (
            Acks(
                seq, self.now, queue.id, (number,), (token,), created_at[place : place + 1],
                positions[place : place + 1], leased_at, worker,
            ),
        )  # fmt: skip

    def _ack_many(self, receipts: Sequence[Receipt], seq: int) -> Sequence[Acks] | None:
        names, ids, tokens = zip(*receipts, strict=True)
        queue = self._queues.get(names[0])
        numbers = self._identity.seqs(ids)
        if (
            queue is None
            or numbers is None
            or names.count(names[0]) != len(names)
            or len(set(numbers)) < len(numbers)
        ):
            return None
        held, first, acks = self._knowledge.leases_of(queue.id, numbers), 0, []
        while first < len(numbers):
            run = held.get(numbers[first])
            if run is None or run.queue != queue.id:
                return None
            end = first + 1
            while end < len(numbers) and held.get(numbers[end]) is run:
                end += 1
            own, proofs = (*numbers[first:end],), tokens[first:end]
            leases = run.leases_of(own)
            if leases.tokens != proofs:
                return None
            acks.append(
                Acks(
                    seq + first, self.now, queue.id, own, proofs, leases.created_at,
                    leases.positions, run.leased_at, run.worker,
                )
            )  # fmt: skip
            first = end
        return acks

    def _both(self, verb: SettleAndLease, seq: int) -> int | None:
        receipts, request = verb.mere_acks(), verb.request
        if receipts is None:
            return None
        ended = self._acks(receipts, seq) if receipts else 0
        if ended is None:
            return None
        settled = [Settled.DONE] * ended
        if request is None:
            self.noting.answers.append((settled, []))
            return ended
        leased = self._lease(request, seq + ended)
        if leased is None:
            return None
        self.noting.answers.append((settled, self.noting.answers.pop()))
        return ended + leased


def _stored(id_: str, queue: str, body: bytes, now: float) -> StoredMessage:
    return new_message(
        (
            id_, queue, body, "json", None, State.READY, 0, now, now, None, None, None, None, [],
            None, 0, None, None, 0, 0, 0, False,
        )
    )  # fmt: skip
