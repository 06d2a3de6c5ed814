"""Who makes the first step: the consumer that asks, or the producer that calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


class ConsumptionPolicy(Protocol):
    """Names the pattern; dispatch and notification policies carry it out."""

    @property
    def pattern(self) -> str:
        """``"pull"`` or ``"push"``."""

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class PullConsumption:
    """Consumers ask for messages; producers only store them."""

    pattern: ClassVar[str] = "pull"
    consumer_requests_messages: ClassVar[bool] = True
    producer_invokes_handler: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "consumer_requests_messages": self.consumer_requests_messages,
            "producer_invokes_handler": self.producer_invokes_handler,
        }


@dataclass(frozen=True, slots=True)
class PushConsumption:
    """A put makes something happen: a dispatch policy runs handlers, a notification wakes them."""

    pattern: ClassVar[str] = "push"
    consumer_requests_messages: ClassVar[bool] = False
    producer_invokes_handler: ClassVar[bool] = True

    def as_dict(self) -> dict[str, Any]:
        return {
            "pattern": self.pattern,
            "consumer_requests_messages": self.consumer_requests_messages,
            "producer_invokes_handler": self.producer_invokes_handler,
        }


PULL_CONSUMPTION = PullConsumption()
