"""What a commit policy adds to ledger and result, step by step."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from localqueue.commits.protocol import Wait
from localqueue.commits.work import Work
from localqueue.message import QueueMessage
from localqueue.stores.records import RecordChange


class Resumed(NamedTuple):
    """An earlier delivery had run the handler, and its effects are complete now."""

    result: Any


class Effects(Protocol):
    """The part of a commit that differs from policy to policy.

    ``act`` and ``resume`` come before the point of no return, ``decided`` is written at it, and
    what comes after it is done again until it succeeds.
    """

    @property
    def is_idle(self) -> bool:
        """It writes nothing of its own."""

    @property
    def is_foreign(self) -> bool:
        """It writes into a store that is not the queue's before the acknowledgement."""

    @property
    def acts(self) -> bool:
        """``act`` does something that others see."""

    @property
    def shows_result(self) -> bool:
        """It passes the result on, which has to be JSON then."""

    def resume(self, message: QueueMessage[Any]) -> Resumed | Wait | None:
        """Before the handler: go on where an earlier delivery died, or tidy up after it."""

    def act(self, work: Work) -> None:
        """After the handler; raising undoes what was done."""

    def decided(self, work: Work) -> list[RecordChange]:
        """At the point of no return, in the queue's own store."""

    def save_elsewhere(self, work: Work) -> None:
        """After it, and before the acknowledgement. May be called again."""

    def with_ack(self, work: Work) -> list[RecordChange]:
        """In the transaction of the acknowledgement."""

    def settled(self, message: QueueMessage[Any]) -> None:
        """After the acknowledgement."""

    def failed(
        self, message: QueueMessage[Any], error: BaseException, final: bool
    ) -> list[RecordChange]:
        """The delivery failed, or (``final``) the message; what to write with its settlement."""

    def dropped(self, message: QueueMessage[Any]) -> None:
        """The delivery does not count."""

    def recover(self) -> int:
        """Finish what others left; how much."""
