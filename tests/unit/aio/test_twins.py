"""The awaitable twin of a store: the same verbs, for those who speak to the store itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from localqueue.clock import Now
from localqueue.message import Receipt
from localqueue.outcome import Ack
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import (
    LeaseRequest,
    Put,
    QueueStore,
    Settle,
    Settled,
    StoredMessage,
    Waiter,
)
from localqueue.stores.threaded import awaitable_twin
from tests.unit.aio.phrases import PATIENCE, eventually, in_a_loop, outcome

NOW = 1_700_000_000.0
REQUEST = LeaseRequest(("jobs",), limit=2)


class Gate:
    """Keeps a thread until the test lets it go on; as ``now`` of a verb, inside its transaction."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self) -> float:
        self._reached.set()
        assert self._opened.wait(PATIENCE), "nobody opened the gate"
        return NOW

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE), "nobody came to the gate"

    def open(self) -> None:
        self._opened.set()


def receipt(message: StoredMessage) -> Receipt:
    return Receipt(message.queue, message.id, message.token)


async def put(twin: Any, *bodies: bytes) -> None:
    await twin.enqueue_many([Put("jobs", body) for body in bodies], now=NOW)


async def cancelled_at(gate: Gate, pending: Any) -> None:
    """The call is cancelled while somebody works on it, and then runs to its end."""

    async def wait() -> object:
        return await pending

    task = asyncio.create_task(wait())
    await gate.reached()
    task.cancel()
    assert isinstance(await outcome(task), asyncio.CancelledError)
    gate.open()


@in_a_loop
async def test_its_verbs_are_those_of_the_store(store: QueueStore) -> None:
    twin: Any = awaitable_twin(store)

    await put(twin, b"1", b"2", b"3")
    first, second = await twin.lease(REQUEST, now=NOW)
    settled, [third] = await twin.settle_and_lease(
        [Settle(receipt(first), Ack()), Settle(receipt(first), Ack())], REQUEST, now=NOW
    )

    assert settled == [Settled.DONE, Settled.STALE]
    assert [one.body for one in (second, third)] == [b"2", b"3"]
    assert await twin.dead_letter_many([receipt(second), receipt(third)], now=NOW) == [True, True]
    assert await twin.requeue_dead_many("jobs", [second.id], now=NOW) == [True]
    assert await twin.qsize("jobs", now=NOW) == store.qsize("jobs", now=NOW) == 1


@in_a_loop
async def test_a_verb_of_many_transactions_runs_to_its_end(whole_store: QueueStore) -> None:
    twin: Any = awaitable_twin(whole_store)
    await put(twin, *[b"1"] * 2500)
    while leased := await twin.lease(LeaseRequest(("jobs",), limit=1000), now=NOW):
        await twin.dead_letter_many([receipt(one) for one in leased], now=NOW)

    assert await twin.prune_dead_letters("jobs", older_than=0.0, now=NOW + 1) == 2500


@in_a_loop
async def test_for_nobody_settlements_stand_and_leases_are_released(store: QueueStore) -> None:
    twin: Any = awaitable_twin(store)
    await put(twin, b"1", b"2", b"3")
    [first] = await twin.lease(LeaseRequest(("jobs",)), now=NOW)
    gate = Gate()
    call = twin.settle_and_lease([Settle(receipt(first), Ack())], REQUEST, now=gate)

    await cancelled_at(gate, call)

    async def is_settled() -> bool:
        return await twin.read("jobs", first.id) is None

    await eventually(is_settled)
    leased: list[StoredMessage] = []
    while len(leased) < 2:
        leased += await twin.lease(REQUEST, now=NOW)
    assert sorted(one.body for one in leased) == [b"2", b"3"]


class Watched(MemoryQueueStore):
    """A store whose waiters are made slowly, and that knows which were closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.closed = threading.Event()

    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        self.gate()
        waiter = super().watch(queues, what)
        setattr(waiter, "close", self.closed.set)  # noqa: B010  # a type checker forbids the other
        return waiter


@in_a_loop
async def test_a_waiter_that_nobody_sees_is_closed() -> None:
    store = Watched()
    twin: Any = awaitable_twin(store)

    await cancelled_at(store.gate, twin.watch(["jobs"], "ready"))

    assert await asyncio.to_thread(store.closed.wait, PATIENCE)


class Counting(MemoryQueueStore):
    """A store that counts what it is asked for."""

    leases = 0
    puts = 0

    def lease(self, request: LeaseRequest, *, now: Now) -> Sequence[StoredMessage]:
        self.leases += 1
        return super().lease(request, now=now)

    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Any:
        self.puts += len(puts)
        return super().enqueue_many(puts, now=now)


@in_a_loop
async def test_a_verb_that_a_subclass_wrote_anew_is_the_one_that_runs() -> None:
    store = Counting()
    twin: Any = awaitable_twin(store)

    await put(twin, b"1", b"2")
    leased = await twin.lease(REQUEST, now=NOW)

    assert (store.puts, store.leases, len(leased)) == (2, 1, 2)
    assert await twin.ack_many([receipt(one) for one in leased], now=NOW) == [True, True]


@in_a_loop
async def test_a_store_has_one_twin_for_all_its_queues(whole_store: QueueStore) -> None:
    assert awaitable_twin(whole_store) is awaitable_twin(whole_store)
