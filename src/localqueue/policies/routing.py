"""Whether a message goes to one consumer or to every subscriber."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.errors import InvalidArgument
from localqueue.stores.settings import FANOUT_MODES


class RoutingPolicy(Protocol):
    """Names the pattern of delivery; with ``fanout`` a put hands out to all subscribers."""

    @property
    def pattern(self) -> str: ...

    @property
    def fanout(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class PointToPointRouting:
    """Each message goes to one consumer at a time; consumers compete."""

    pattern: ClassVar[str] = "point-to-point"
    single_consumer_per_message: ClassVar[bool] = True
    fanout: ClassVar[bool] = False

    def settings(self) -> dict[str, object]:
        return {"fanout": None}

    def as_dict(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "single_consumer_per_message": self.single_consumer_per_message,
            "fanout": self.fanout,
        }


@dataclass(frozen=True, slots=True)
class PublishSubscribeRouting:
    """Each message goes to every subscriber, all of them in one transaction.

    ``"copy"`` stores a message per subscriber. ``"cursor"`` stores one body and a position per
    subscriber, and makes a subscriber's row when it leases. ``"hybrid"`` is cursor until a
    delivery fails or is delayed; that message then gets a row of its own.
    """

    fanout_mode: str = "copy"
    pattern: ClassVar[str] = "publish-subscribe"
    single_consumer_per_message: ClassVar[bool] = False
    fanout: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.fanout_mode not in FANOUT_MODES:
            raise InvalidArgument(
                f"fanout_mode must be one of {', '.join(FANOUT_MODES)}, not {self.fanout_mode!r}"
            )

    def settings(self) -> dict[str, object]:
        return {"fanout": self.fanout_mode}

    def as_dict(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "pattern": self.pattern,
            "single_consumer_per_message": self.single_consumer_per_message,
            "fanout": self.fanout,
        }
        if self.fanout_mode != "copy":
            described["fanout_mode"] = self.fanout_mode
        return described


POINT_TO_POINT_ROUTING = PointToPointRouting()
