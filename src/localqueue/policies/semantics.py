"""The queue's contract in eleven words, for people and for documentation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueSemantics:
    """Describes a configuration and changes nothing. It must agree with the policies."""

    locality: str = "local"
    delivery: str = "at-least-once"
    routing: str = "point-to-point"
    consumption: str = "pull"
    ordering: str = "fifo-ready"
    leases: bool = True
    acknowledgements: bool = True
    dead_letters: bool = True
    deduplication: bool = True
    subscriptions: bool = False
    notifications: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


LOCAL_AT_LEAST_ONCE = QueueSemantics()
