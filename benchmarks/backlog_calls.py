"""The calls that are measured: each leaves the queue as long as it found it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.backlog_queues import BUSY_KEY, NAME, Backlog
from benchmarks.values import job
from localqueue.message import QueueMessage
from localqueue.outcome import Ack
from localqueue.stores.protocol import LeaseRequest, Settle, Settled, StoredMessage

VALUE = job(1)
HUNDRED = [job(number) for number in range(100)]
ERROR = "a handler failed"

Message = QueueMessage[Any]
Answer = tuple[list[Settled], Sequence[StoredMessage]]


def _nothing(on: Backlog) -> None:
    return


def _look_only(on: Backlog, answer: Any) -> None:
    return


@dataclass(frozen=True, slots=True)
class Call:
    """A call, what must be there before it, and what puts the queue right after it."""

    name: str
    run: Callable[[Backlog, Any], Any]
    prepare: Callable[[Backlog], Any] = _nothing
    restore: Callable[[Backlog, Any], object] = _look_only


def _somewhere(on: Backlog) -> str:
    return next(on.somewhere)


def _put(on: Backlog) -> Message:
    return on.queue.put(VALUE)


def _put_hundred(on: Backlog) -> list[Message]:
    return on.queue.put_many(HUNDRED)


def _put_and_lease(on: Backlog) -> Message:
    on.queue.put(VALUE)
    return on.lease()


def _put_and_dead_letter(on: Backlog) -> Message:
    message = _put_and_lease(on)
    on.queue.dead_letter(message, ERROR)
    return message


def _put_elsewhere(on: Backlog) -> Any:
    other = on.another_queue("short")
    other.put_many(HUNDRED)
    return other


def _settle_and_lease(on: Backlog, message: Message) -> Answer:
    settle = Settle(message.receipt, Ack())
    request = LeaseRequest((NAME,), 1, 60.0, "worker")
    return on.store.settle_and_lease([settle], request, now=on.when.now)


def _take(on: Backlog, answer: object) -> None:
    assert answer
    assert on.queue.ack(on.lease())


def _take_hundred(on: Backlog, answer: object) -> None:
    assert len(on.queue.ack_many(on.queue.get_messages(100))) == 100


def _ack_the_next(on: Backlog, answer: Answer) -> None:
    (settled,), (leased,) = answer
    assert settled is Settled.DONE
    assert on.queue.ack(leased.id)
    on.queue.put(VALUE)


def _found(on: Backlog, answer: object) -> None:
    assert answer


def _remove(on: Backlog, message: Message) -> None:
    assert on.queue.ack(message.id)


def _cancel(on: Backlog, message: Message) -> None:
    assert on.queue.cancel(message)


def _put_behind(on: Backlog, answer: object) -> None:
    assert answer
    on.behind_key.append(on.queue.put(VALUE, ordering_key=BUSY_KEY).id)


GLANCES = (
    Call("stats", lambda on, _: on.queue.stats()),
    Call("qsize", lambda on, _: on.queue.qsize()),
    Call("empty", lambda on, _: on.queue.empty()),
    Call("full", lambda on, _: on.queue.full()),
    Call("peek(10)", lambda on, _: on.queue.peek(10), restore=_found),
    Call("inspect", lambda on, number: on.queue.inspect(number), _somewhere, _found),
)
"""They change nothing at all, not even what time has brought about."""

LOOKING = (
    *GLANCES,
    Call("stats after a put", lambda on, _: on.queue.stats(), _put, _take),
    Call("history", lambda on, number: on.queue.history(number), _somewhere, _found),
    Call("dead_letters(10)", lambda on, _: on.queue.dead_letters(10), restore=_found),
    Call(
        "count_dead_letters_older_than",
        lambda on, _: on.queue.count_dead_letters_older_than(0.0),
        restore=_found,
    ),
    Call("journal(limit=100)", lambda on, _: on.queue.journal(limit=100), restore=_found),
    Call(
        "journal(limit=100) near its end",
        lambda on, _: on.queue.journal(after=on.late, limit=100),
        restore=_found,
    ),
)

CHANGING = (
    Call("put", lambda on, _: on.queue.put(VALUE), restore=_take),
    Call("put_many(100)", lambda on, _: on.queue.put_many(HUNDRED), restore=_take_hundred),
    Call("get_message + ack", lambda on, _: on.queue.ack(on.lease()), _put),
    Call(
        "get_messages(100) + ack_many",
        lambda on, _: on.queue.ack_many(on.queue.get_messages(100)),
        _put_hundred,
    ),
    Call("settle_and_lease", _settle_and_lease, _put_and_lease, _ack_the_next),
    Call("release", lambda on, held: on.queue.release(held, error=ERROR), _put_and_lease, _take),
    Call(
        "release with a delay",
        lambda on, held: on.queue.release(held, 3600.0) and held,
        _put_and_lease,
        _cancel,
    ),
    Call(
        "dead_letter",
        lambda on, held: on.queue.dead_letter(held, ERROR) and held,
        _put_and_lease,
        _remove,
    ),
    Call(
        "requeue_dead",
        lambda on, dead: on.queue.requeue_dead(dead.id),
        _put_and_dead_letter,
        _take,
    ),
    Call("extend", lambda on, held: on.queue.extend(held) and held, _put_and_lease, _remove),
    Call("cancel", lambda on, waiting: on.queue.cancel(waiting), _put, _found),
)

CALLS = LOOKING + CHANGING
"""Looking first: the ids it looks for are taken away by those that change the queue."""

CALLS_OF_A_KEY = (
    Call(
        "put behind the key",
        lambda on, _: on.queue.put(VALUE, ordering_key=BUSY_KEY),
        restore=_cancel,
    ),
    Call(
        "cancel one behind the key",
        lambda on, number: on.queue.cancel(number),
        lambda on: on.behind_key.popleft(),
        _put_behind,
    ),
)
"""Only where messages are held."""

CALLS_BESIDE = (Call("purge of 100", lambda on, other: other.purge(), _put_elsewhere, _found),)
"""Only where another queue is long."""
