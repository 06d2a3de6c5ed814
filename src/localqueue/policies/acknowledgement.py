"""How finished work is reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


class AcknowledgementPolicy(Protocol):
    """Says whether consumers acknowledge, and what that does to the message."""

    @property
    def acknowledgements(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ExplicitAcknowledgement:
    """A consumer says when it is done, and the message is removed then."""

    acknowledgements: ClassVar[bool] = True
    explicit_ack: ClassVar[bool] = True
    removes_on_ack: ClassVar[bool] = True

    def as_dict(self) -> dict[str, Any]:
        return {
            "acknowledgements": self.acknowledgements,
            "explicit_ack": self.explicit_ack,
            "removes_on_ack": self.removes_on_ack,
        }


EXPLICIT_ACKNOWLEDGEMENT = ExplicitAcknowledgement()
