"""A queue's row: what the store itself acts on, the same for every process that uses the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from localqueue.errors import ConfigurationError

DEFAULT_JOURNAL_AGE = 7 * 86_400.0
DEFAULT_JOURNAL_ROWS = 1_000_000

ORDERINGS = ("fifo-ready", "priority", "best-effort", "per-key")
OVERFLOWS = ("block", "reject", "drop-newest", "drop-oldest", "throttle", "overflow")
FANOUT_MODES = ("copy", "cursor", "hybrid")


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


DEFAULT_SETTINGS = QueueSettings()
SETTING_NAMES = frozenset(field.name for field in fields(QueueSettings))
