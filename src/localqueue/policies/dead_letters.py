"""Where messages go that cannot be processed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


class DeadLetterPolicy(Protocol):
    """Says whether failed messages are kept, out of delivery, for people to look at."""

    @property
    def dead_letters(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """Failed messages are kept with their last error and can be put back into delivery."""

    dead_letters: ClassVar[bool] = True
    stores_failures: ClassVar[bool] = True
    supports_requeue: ClassVar[bool] = True

    def as_dict(self) -> dict[str, Any]:
        return {
            "dead_letters": self.dead_letters,
            "stores_failures": self.stores_failures,
            "supports_requeue": self.supports_requeue,
        }


DEAD_LETTER_QUEUE = DeadLetterQueue()
