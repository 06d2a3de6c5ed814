"""Who the subscribers of a topic are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.checks import check_queue_name, check_subscriber_name
from localqueue.errors import InvalidArgument, WrongType


class SubscriptionPolicy(Protocol):
    """Says whether there are subscribers. One with a fixed set lists it in ``subscribers``."""

    @property
    def subscriptions(self) -> bool: ...

    @property
    def fanout(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class NoSubscriptions:
    """Nobody subscribes."""

    subscriptions: ClassVar[bool] = False
    fanout: ClassVar[bool] = False
    dynamic: ClassVar[bool] = False
    subscribers: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "subscriptions": self.subscriptions,
            "fanout": self.fanout,
            "subscriber_count": 0,
        }


@dataclass(frozen=True, slots=True, init=False)
class StaticFanoutSubscriptions:
    """A fixed set of subscribers, each with a queue of its own named ``topic.subscriber``."""

    subscribers: tuple[str, ...]
    subscriptions: ClassVar[bool] = True
    fanout: ClassVar[bool] = True
    dynamic: ClassVar[bool] = False

    def __init__(self, subscribers: Iterable[str]) -> None:
        object.__setattr__(self, "subscribers", _check_subscribers(subscribers))

    def as_dict(self) -> dict[str, Any]:
        return {
            "subscriptions": self.subscriptions,
            "fanout": self.fanout,
            "subscriber_count": len(self.subscribers),
            "subscribers": list(self.subscribers),
        }


@dataclass(frozen=True, slots=True)
class DynamicFanoutSubscriptions:
    """Subscribers come and go with ``queue.subscribe`` and ``unsubscribe``; the store has the list.

    A put while nobody subscribes is refused.
    """

    subscriptions: ClassVar[bool] = True
    fanout: ClassVar[bool] = True
    dynamic: ClassVar[bool] = True
    subscribers: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "subscriptions": self.subscriptions,
            "fanout": self.fanout,
            "subscriber_count": None,
            "dynamic": self.dynamic,
        }


def subscriber_queue_name(queue_name: str, subscriber: str) -> str:
    """The queue that holds what is published to ``queue_name`` for this subscriber."""
    return check_queue_name(f"{check_queue_name(queue_name)}.{check_subscriber_name(subscriber)}")


def _check_subscribers(given: Any) -> tuple[str, ...]:
    # A string is an iterable of its letters, which nobody means.
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise WrongType("subscribers must be an iterable of names")
    names = tuple(check_subscriber_name(name) for name in given)
    if not names:
        raise InvalidArgument("subscribers cannot be empty")
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"subscribers must be unique: {name!r} is there twice")
    return names


NO_SUBSCRIPTIONS = NoSubscriptions()
