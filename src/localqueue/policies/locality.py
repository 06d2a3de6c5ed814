"""Where the queue's state lives, seen from the process that uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


class LocalityPolicy(Protocol):
    """Names the boundary between a process and the queue's state. It moves no data by itself."""

    @property
    def locality(self) -> str:
        """``"local"`` or ``"remote"``."""

    @property
    def crosses_network_boundary(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class LocalQueuePlacement:
    """The state is on the host of the process; no network is crossed to reach it."""

    locality: ClassVar[str] = "local"
    co_located_state: ClassVar[bool] = True
    crosses_network_boundary: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "locality": self.locality,
            "co_located_state": self.co_located_state,
            "crosses_network_boundary": self.crosses_network_boundary,
        }


@dataclass(frozen=True, slots=True)
class RemoteQueuePlacement:
    """The state is behind a network. Only names the boundary: the store decides what is shared."""

    locality: ClassVar[str] = "remote"
    co_located_state: ClassVar[bool] = False
    crosses_network_boundary: ClassVar[bool] = True

    def as_dict(self) -> dict[str, Any]:
        return {
            "locality": self.locality,
            "co_located_state": self.co_located_state,
            "crosses_network_boundary": self.crosses_network_boundary,
        }


LOCAL_QUEUE_PLACEMENT = LocalQueuePlacement()
