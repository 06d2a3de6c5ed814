"""What a put does when the queue is full. Each policy names what it loses.

Capacity counts the messages that wait: ready, delayed and held back, neither leased nor dead ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.checks import check_count, check_queue_name, check_seconds
from localqueue.errors import InvalidArgument


class BackpressurePolicy(Protocol):
    """Says when a queue is full and what happens then."""

    @property
    def maxsize(self) -> int:
        """How many messages may wait; 0 is without limit."""

    @property
    def overflow(self) -> str: ...

    def is_full(self, *, qsize: int) -> bool:
        """Whether ``qsize`` waiting messages reach the capacity."""

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class BoundedBackpressure:
    """A put waits for room, or raises ``queue.Full`` when ``overflow`` is ``"reject"``."""

    maxsize: int = 0
    overflow: str = "block"
    loses: ClassVar[str] = "nothing"

    def __post_init__(self) -> None:
        check_count("maxsize", self.maxsize)
        if self.overflow not in ("block", "reject"):
            raise InvalidArgument(f"overflow must be 'block' or 'reject', not {self.overflow!r}")

    def is_full(self, *, qsize: int) -> bool:
        return 0 < self.maxsize <= qsize

    def settings(self) -> dict[str, object]:
        return _settings(self)

    def as_dict(self) -> dict[str, Any]:
        return _described("bounded", self)


@dataclass(frozen=True, slots=True)
class RejectingBackpressure:
    """A put raises ``queue.Full`` at once, also when it was asked to block."""

    maxsize: int = 0
    overflow: str = "reject"
    loses: ClassVar[str] = "nothing"

    def __post_init__(self) -> None:
        check_count("maxsize", self.maxsize)
        if self.overflow != "reject":
            raise InvalidArgument(f"overflow must be 'reject', not {self.overflow!r}")

    def is_full(self, *, qsize: int) -> bool:
        return 0 < self.maxsize <= qsize

    def settings(self) -> dict[str, object]:
        return _settings(self)

    def as_dict(self) -> dict[str, Any]:
        return _described("rejecting", self)


@dataclass(frozen=True, slots=True)
class DropNewestBackpressure:
    """What is put into a full queue is not stored; the returned message says ``dropped``."""

    maxsize: int
    overflow: ClassVar[str] = "drop-newest"
    loses: ClassVar[str] = "the message that is being put"

    def __post_init__(self) -> None:
        check_count("maxsize", self.maxsize, least=1)

    def is_full(self, *, qsize: int) -> bool:
        return self.maxsize <= qsize

    def settings(self) -> dict[str, object]:
        return _settings(self)

    def as_dict(self) -> dict[str, Any]:
        return _described("drop-newest", self)


@dataclass(frozen=True, slots=True)
class DropOldestBackpressure:
    """A full queue lets go of its oldest ready message, of the lowest priority, for the new one.

    Where none is ready, because all are delayed or held back, a put raises ``queue.Full``.
    """

    maxsize: int
    overflow: ClassVar[str] = "drop-oldest"
    loses: ClassVar[str] = "the oldest ready message, although its put was accepted"

    def __post_init__(self) -> None:
        check_count("maxsize", self.maxsize, least=1)

    def is_full(self, *, qsize: int) -> bool:
        return self.maxsize <= qsize

    def settings(self) -> dict[str, object]:
        return _settings(self)

    def as_dict(self) -> dict[str, Any]:
        return _described("drop-oldest", self)


@dataclass(frozen=True, slots=True)
class ThrottlingBackpressure:
    """Every message is stored, but a producer pauses after its put while the queue is full.

    The pause grows with the excess, up to ``max_delay`` seconds at twice ``maxsize``. The queue
    grows on when producers stay faster than consumers.
    """

    maxsize: int
    max_delay: float = 1.0
    overflow: ClassVar[str] = "throttle"
    loses: ClassVar[str] = "nothing"

    def __post_init__(self) -> None:
        check_count("maxsize", self.maxsize, least=1)
        check_seconds("max_delay", self.max_delay, zero=False)

    def is_full(self, *, qsize: int) -> bool:
        return self.maxsize <= qsize

    def settings(self) -> dict[str, object]:
        return _settings(self, throttle_delay=float(self.max_delay))

    def as_dict(self) -> dict[str, Any]:
        return _described("throttling", self) | {"max_delay": self.max_delay}


@dataclass(frozen=True, slots=True)
class OverflowBackpressure:
    """What does not fit goes to the queue named ``to``, or to the dead letters when it is None."""

    maxsize: int
    to: str | None = None
    overflow: ClassVar[str] = "overflow"

    def __post_init__(self) -> None:
        check_count("maxsize", self.maxsize, least=1)
        if self.to is not None:
            check_queue_name(self.to)

    @property
    def loses(self) -> str:
        where = "the dead letters" if self.to is None else f"queue {self.to!r}"
        return f"nothing; what does not fit waits in {where} instead"

    def is_full(self, *, qsize: int) -> bool:
        return self.maxsize <= qsize

    def settings(self) -> dict[str, object]:
        return _settings(self, overflow_to=self.to)

    def as_dict(self) -> dict[str, Any]:
        return _described("overflow", self) | {"to": self.to or "dead letters"}


class _NamesItsLoss(BackpressurePolicy, Protocol):
    @property
    def loses(self) -> str: ...


def _settings(
    policy: BackpressurePolicy, *, overflow_to: str | None = None, throttle_delay: float = 0.0
) -> dict[str, object]:
    # All four together: what an earlier policy left in the queue's row must not act on.
    return {
        "maxsize": policy.maxsize,
        "overflow": policy.overflow,
        "overflow_to": overflow_to,
        "throttle_delay": throttle_delay,
    }


def _described(kind: str, policy: _NamesItsLoss) -> dict[str, Any]:
    return {
        "type": kind,
        "maxsize": policy.maxsize,
        "overflow": policy.overflow,
        "loses": policy.loses,
    }
