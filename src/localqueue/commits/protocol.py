"""What a worker asks a commit for, before a handler runs, after it ended, and after the ack.

    begin ──Run──▶ handler ──returned──▶ success ──▶ settle(Ack, extras) ──▶ settled
      │                └─────raised────▶ failure ──▶ settle(Release or DeadLetter, extras)
      ├──Done──▶ settle(Ack, done.extras) ──▶ settled
      ├──Wait──▶ settle(Release(wait.seconds)), nothing charged
      └──LeaseLost, also from success──▶ dropped, nothing settled and nothing charged

A commit belongs to one queue. Its methods block, may be called from any thread, and keep nothing
in memory that a crash could lose: what a killed worker left is found by the next ``begin`` of its
message, or by ``recover``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from localqueue.message import QueueMessage
from localqueue.stores.protocol import Put
from localqueue.stores.records import RecordChange

if TYPE_CHECKING:
    from localqueue.queue import PersistentQueue


@dataclass(frozen=True, slots=True)
class Extras:
    """What is written in the transaction that settles the message.

    Settled.CONFLICT means that another delivery of the key came first: drop the result and release
    the message without extras and without a charge; the next ``begin`` tells what became of it.
    """

    records: tuple[RecordChange, ...] = ()
    puts: tuple[Put, ...] = ()


NOTHING = Extras()


@dataclass(frozen=True, slots=True)
class Run:
    """Run the handler: this delivery has the key for as long as it has its lease."""


@dataclass(frozen=True, slots=True)
class Done:
    """The work is done: do not run the handler, acknowledge with ``extras``, return ``result``."""

    result: Any = None
    extras: Extras = field(default=NOTHING)


@dataclass(frozen=True, slots=True)
class Wait:
    """Another delivery of the key is running: release for ``seconds``, and charge nothing."""

    seconds: float


class Commit(Protocol):
    """How a success becomes durable. ``commits.open.commit_for(queue)`` makes one."""

    def begin(self, message: QueueMessage[Any]) -> Run | Done | Wait:
        """Before the handler: may it run?

        First it finishes what an earlier delivery began. Raising means that this delivery failed;
        the handler must not run. LeaseLost means that it was over before it began: somebody else
        has the message, or may have it at any moment.
        """

    def success(self, message: QueueMessage[Any], result: Any) -> Extras:
        """The handler returned: what to write with the acknowledgement.

        May act on participants, steps and foreign stores first. Raising means that the delivery
        failed: what was begun is undone, and ``failure`` is to be called with that error; with
        LeaseLost somebody else has the key, and ``dropped`` is to be called. InvalidResult is for
        good: the same handler would return the like again.
        """

    def settled(self, message: QueueMessage[Any]) -> None:
        """The acknowledgement is durable (Settled.DONE): send, commit, tidy up.

        Does not raise: what cannot be done now is logged and left to ``recover``.
        """

    def failure(self, message: QueueMessage[Any], error: BaseException, final: bool) -> Extras:
        """The delivery failed: what to write with the release, or (``final``) the dead letter.

        What failed after its success was decided has succeeded all the same: nothing is undone, and
        the next delivery, or ``recover``, goes on with it. If it raises, settle without extras.
        """

    def extended(self, message: QueueMessage[Any], seconds: float) -> None:
        """The lease of a running message was extended to ``seconds`` from now.

        For every heartbeat that was answered HELD. Costs nothing where the ledger shares the
        queue's store: there the lease itself is looked at. Does not raise.
        """

    def dropped(self, message: QueueMessage[Any]) -> None:
        """The lease is lost, or the settlement was refused after ``success``: undo what waits.

        For promptness; ``recover`` does it later where it is not called. Does not raise.
        """

    def recover(self) -> int:
        """Finish what crashed workers left: how much that was. At start, and now and then.

        Does not raise: what cannot be finished now, or not even be looked at, is logged and stays.
        """


@runtime_checkable
class OpensCommit(Protocol):
    """A commit policy of the user's own that can be carried out.

    ``localqueue.testing.commit_contract`` proves what it returns.
    """

    def commit(self, queue: PersistentQueue[Any]) -> Commit: ...
