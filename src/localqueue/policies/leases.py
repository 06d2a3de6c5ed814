"""How long a consumer may hold a message before others get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.checks import check_seconds
from localqueue.errors import InvalidArgument

DEFAULT_LEASE_TIMEOUT = 30.0


class LeasePolicy(Protocol):
    """Says whether messages are leased while they are worked on, and for how long."""

    @property
    def timeout(self) -> float:
        """Seconds until an unsettled message is delivered again; ``extend`` starts them anew."""

    @property
    def uses_leases(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class FixedLeaseTimeout:
    """Every lease ends ``timeout`` seconds after it began or was last extended."""

    timeout: float = DEFAULT_LEASE_TIMEOUT
    uses_leases: ClassVar[bool] = True
    expires_inflight: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_lease_timeout("lease timeout", self.timeout)

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "fixed-timeout",
            "timeout": self.timeout,
            "uses_leases": self.uses_leases,
            "expires_inflight": self.expires_inflight,
        }


def check_lease_timeout(what: str, timeout: Any) -> float:
    """A finite number of seconds above zero; ``what`` names it in the refusal."""
    # One sentence for zero and for less, whereas check_seconds has two.
    if isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout <= 0:
        raise InvalidArgument(f"{what} must be greater than zero")
    return check_seconds(what, timeout, zero=False)


FIXED_LEASE_TIMEOUT = FixedLeaseTimeout()
