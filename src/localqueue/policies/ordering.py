"""In which order ready messages are delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


class OrderingPolicy(Protocol):
    """Names the order. One that the store acts on says so in ``settings()``."""

    @property
    def guarantee(self) -> str: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class FifoReadyOrdering:
    """By the time at which a message became due; those due together in the order of their puts."""

    guarantee: ClassVar[str] = "fifo-ready"
    ready_before_delayed: ClassVar[bool] = True
    stable_for_same_timestamp: ClassVar[bool] = True
    priority_before_sequence: ClassVar[bool] = False

    def settings(self) -> dict[str, object]:
        return {"ordering": self.guarantee}

    def as_dict(self) -> dict[str, Any]:
        return _described(self)


@dataclass(frozen=True, slots=True)
class PriorityOrdering:
    """A higher priority that is due overtakes everything lower; equal ones as FifoReadyOrdering."""

    guarantee: ClassVar[str] = "priority"
    ready_before_delayed: ClassVar[bool] = True
    stable_for_same_timestamp: ClassVar[bool] = True
    priority_before_sequence: ClassVar[bool] = True

    def settings(self) -> dict[str, object]:
        return {"ordering": self.guarantee}

    def as_dict(self) -> dict[str, Any]:
        return _described(self)


@dataclass(frozen=True, slots=True)
class BestEffortOrdering:
    """No promise about the order."""

    guarantee: ClassVar[str] = "best-effort"
    ready_before_delayed: ClassVar[bool] = False
    stable_for_same_timestamp: ClassVar[bool] = False
    priority_before_sequence: ClassVar[bool] = False

    def settings(self) -> dict[str, object]:
        return {"ordering": self.guarantee}

    def as_dict(self) -> dict[str, Any]:
        return _described(self)


@dataclass(frozen=True, slots=True)
class OrderingKeys:
    """Messages of one ``ordering_key`` one by one in the order of their puts; keys in parallel.

    A delayed or failed head holds back the rest of its key until it is acknowledged, dead-lettered,
    expired or removed. Messages without a key follow FifoReadyOrdering.
    """

    guarantee: ClassVar[str] = "per-key"
    ready_before_delayed: ClassVar[bool] = True
    stable_for_same_timestamp: ClassVar[bool] = True
    priority_before_sequence: ClassVar[bool] = False

    def settings(self) -> dict[str, object]:
        return {"ordering": self.guarantee}

    def as_dict(self) -> dict[str, Any]:
        return _described(self)


def _described(
    policy: FifoReadyOrdering | PriorityOrdering | BestEffortOrdering | OrderingKeys,
) -> dict[str, Any]:
    return {
        "guarantee": policy.guarantee,
        "ready_before_delayed": policy.ready_before_delayed,
        "stable_for_same_timestamp": policy.stable_for_same_timestamp,
        "priority_before_sequence": policy.priority_before_sequence,
    }


FIFO_READY_ORDERING = FifoReadyOrdering()
