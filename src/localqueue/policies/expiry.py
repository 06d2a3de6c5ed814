"""How long a message may wait. What is already dead is kept or pruned by its own rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.checks import check_seconds
from localqueue.errors import InvalidArgument

ON_EXPIRY = ("drop", "dead-letter")


class ExpiryPolicy(Protocol):
    """Says whether messages expire; ``settings()`` tells the store ``ttl`` and ``on_expiry``."""

    @property
    def expires(self) -> bool: ...

    def settings(self) -> dict[str, object]: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class NoExpiry:
    """Messages wait as long as it takes, unless a put gives its own ``ttl``."""

    expires: ClassVar[bool] = False

    def settings(self) -> dict[str, object]:
        return {"ttl": None}

    def as_dict(self) -> dict[str, Any]:
        return {"type": "none", "expires": self.expires}


@dataclass(frozen=True, slots=True)
class MessageTTL:
    """A message that waited ``seconds`` from its put without being leased leaves the queue.

    ``on_expiry="drop"`` removes it, ``"dead-letter"`` keeps it for people to look at; both leave an
    event in the journal. A leased message does not expire while its lease is held.
    """

    seconds: float
    on_expiry: str = "drop"
    expires: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_seconds("seconds", self.seconds, zero=False)
        if self.on_expiry not in ON_EXPIRY:
            raise InvalidArgument(
                f"on_expiry must be 'drop' or 'dead-letter', not {self.on_expiry!r}"
            )

    def settings(self) -> dict[str, object]:
        return {"ttl": float(self.seconds), "on_expiry": self.on_expiry}

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "message-ttl",
            "expires": self.expires,
            "seconds": self.seconds,
            "on_expiry": self.on_expiry,
        }


NO_EXPIRY = NoExpiry()
