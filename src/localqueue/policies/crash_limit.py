"""How many workers a message may take down before it is set aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from localqueue.checks import check_count

DEFAULT_CRASH_LIMIT = 3


class CrashLimitPolicy(Protocol):
    """Bounds the deliveries of one message that ended with the death of its worker."""

    @property
    def limit(self) -> int: ...

    def settings(self) -> dict[str, object]: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class CrashLimit:
    """The ``limit``-th delivery that ends with the worker's death makes a dead letter.

    Failures that a handler reports are not counted here, nor is the expiry of a bare ``get()``.
    """

    limit: int = DEFAULT_CRASH_LIMIT

    def __post_init__(self) -> None:
        check_count("limit", self.limit, least=1)

    def settings(self) -> dict[str, object]:
        return {"crash_limit": self.limit}

    def as_dict(self) -> dict[str, Any]:
        return {"type": "crash-limit", "limit": self.limit}


CRASH_LIMIT = CrashLimit()
