"""What is kept of a queue's past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from localqueue.checks import check_count, check_seconds
from localqueue.errors import ConfigurationError, WrongType
from localqueue.stores.settings import DEFAULT_JOURNAL_AGE, DEFAULT_JOURNAL_ROWS


class JournalPolicy(Protocol):
    """Says which events are kept, and for how long."""

    @property
    def enabled(self) -> bool: ...

    @property
    def payloads(self) -> bool: ...

    def settings(self) -> dict[str, object]: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Journal:
    """Events are kept ``max_age`` seconds and at most ``max_rows`` of them, whichever is less.

    With ``payloads`` the values are kept as well, so that messages can be replayed. When not
    ``enabled``, events go as soon as they are counted. A registered reader keeps what it has not
    read yet, within its own limit.
    """

    enabled: bool = True
    payloads: bool = False
    max_age: float = DEFAULT_JOURNAL_AGE
    max_rows: int = DEFAULT_JOURNAL_ROWS

    def __post_init__(self) -> None:
        for what in ("enabled", "payloads"):
            if not isinstance(getattr(self, what), bool):
                raise WrongType(f"{what} must be True or False")
        check_seconds("max_age", self.max_age, zero=False)
        check_count("max_rows", self.max_rows, least=1)
        if self.payloads and not self.enabled:
            raise ConfigurationError(
                "a journal that is off cannot keep payloads; use Journal(payloads=True)"
            )

    def settings(self) -> dict[str, object]:
        return {
            "journal": self.enabled,
            "journal_payloads": self.payloads,
            "journal_max_age": float(self.max_age),
            "journal_max_rows": self.max_rows,
        }

    def as_dict(self) -> dict[str, Any]:
        return {
            "enabled": self.enabled,
            "payloads": self.payloads,
            "max_age": self.max_age,
            "max_rows": self.max_rows,
        }


JOURNAL = Journal()
