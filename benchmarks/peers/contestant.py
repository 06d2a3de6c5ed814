"""What a queue has to offer to be measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from benchmarks.durability import DURABILITIES, Durability

Value = dict[str, Any]


class Contestant(ABC):
    """One open queue. It lives in its own process and is called from one thread."""

    @abstractmethod
    def put(self, value: Value) -> object:
        """Store one value. This is what is measured."""

    @abstractmethod
    def take(self, count: int) -> Sequence[Value]:
        """Get this many and, where it is possible, acknowledge each before the next one."""

    def fill(self, values: Sequence[Value]) -> None:
        """Store them all before it is measured, in the fastest way there is."""
        for value in values:
            self.put(value)

    def tidy(self) -> None:
        """Throw away what it keeps of settled messages. Not measured."""
        return

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contestant before it is opened. Knowing it needs nothing to be installed."""

    product: str
    kind: Literal["ours", "raw", "peer"]
    open: Callable[[Path, Durability], Contestant]
    """Opens the queue in this folder, new or as it was left. Runs in the contestant's process."""
    variant: str = ""
    """What tells it from the other entrants of the same product, or where it keeps its messages."""
    acknowledges: bool = True
    """Whether a message comes back when whoever took it dies."""
    durabilities: tuple[Durability, ...] = DURABILITIES
    needs: tuple[str, ...] = ()
    """The modules that have to be installed."""
    distribution: str | None = None
    """What ships the first of them, where that has another name."""
    lacks: str = ""
    """What it has not, in a few words."""

    @property
    def missing(self) -> list[str]:
        """Which of the modules are not installed."""
        return [module for module in self.needs if find_spec(module) is None]

    @property
    def name(self) -> str:
        return f"{self.product}{self.variant}"

    @property
    def label(self) -> str:
        """The name, with the version of what is installed."""
        if not self.needs:
            return self.name
        return f"{self.product} {version(self.distribution or self.needs[0])}{self.variant}"
