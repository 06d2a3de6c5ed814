"""A queue's row: what the store itself acts on, the same for every process that uses the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from localqueue.checks import check_count, check_queue_name, check_seconds
from localqueue.errors import ConfigurationError, WrongType

DEFAULT_JOURNAL_AGE = 7 * 86_400.0
DEFAULT_JOURNAL_ROWS = 1_000_000

ORDERINGS = ("fifo-ready", "priority", "best-effort", "per-key")
OVERFLOWS = ("block", "reject", "drop-newest", "drop-oldest", "throttle", "overflow")
FANOUT_MODES = ("copy", "cursor", "hybrid")
ON_EXPIRY = ("drop", "dead-letter")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings in force. A policy that the user gave is written here at first use."""

    ordering: str = "fifo-ready"
    maxsize: int = 0
    overflow: str = "block"
    overflow_to: str | None = None
    """The queue that takes what does not fit; None is this queue's dead letters."""
    throttle_delay: float = 0.0
    crash_limit: int = 3
    ttl: float | None = None
    on_expiry: str = "drop"
    journal: bool = True
    journal_payloads: bool = False
    journal_max_age: float = DEFAULT_JOURNAL_AGE
    journal_max_rows: int = DEFAULT_JOURNAL_ROWS
    fanout: str | None = None
    """How a topic hands out what is published to it; None is an ordinary queue."""
    paused: bool = False

    def __post_init__(self) -> None:
        """Refuse what would trip the store later, in every process."""
        _one_of("ordering", self.ordering, ORDERINGS)
        _one_of("overflow", self.overflow, OVERFLOWS)
        _one_of("on_expiry", self.on_expiry, ON_EXPIRY)
        if self.fanout is not None:
            _one_of("fanout", self.fanout, FANOUT_MODES)
        if self.overflow_to is not None:
            check_queue_name(self.overflow_to)
        for name in ("maxsize", "crash_limit"):
            check_count(name, getattr(self, name))
        check_count("journal_max_rows", self.journal_max_rows, least=1)
        check_seconds("throttle_delay", self.throttle_delay)
        check_seconds("journal_max_age", self.journal_max_age, zero=False)
        if self.ttl is not None:
            check_seconds("ttl", self.ttl, zero=False)
        for name in ("journal", "journal_payloads", "paused"):
            if not isinstance(getattr(self, name), bool):
                raise WrongType(f"{name} must be True or False, not {getattr(self, name)!r}")

    @property
    def keeps_payloads(self) -> bool:
        """Whether the journal keeps the values of what was put."""
        return self.journal and self.journal_payloads

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changed(self, changes: Mapping[str, Any]) -> QueueSettings:
        """These settings with some changed; a name that does not exist is refused."""
        unknown = set(changes) - SETTING_NAMES
        if unknown:
            raise ConfigurationError(f"unknown queue settings: {', '.join(sorted(unknown))}")
        return replace(self, **changes)

    def differences(self) -> dict[str, Any]:
        """Only what is not the default: this is what the row keeps."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value != getattr(DEFAULT_SETTINGS, name)
        }


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigurationError(f"{name} must be one of {', '.join(known)}, not {value!r}")


DEFAULT_SETTINGS = QueueSettings()
SETTING_NAMES = frozenset(field.name for field in fields(QueueSettings))
