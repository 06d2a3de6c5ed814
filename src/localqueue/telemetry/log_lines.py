"""A listener that writes a line for every event."""

from __future__ import annotations

import json
import logging

from localqueue.telemetry.events import (
    Crashed,
    DeadLettered,
    Dropped,
    Duplicated,
    Event,
    LeaseExpired,
    Retried,
    StaleReceipt,
)

_UNUSUAL = (Duplicated, Dropped, LeaseExpired, Retried, DeadLettered, Crashed, StaleReceipt)


class LogLines:
    """Each event as one line of JSON; ``record.event`` is the event itself, for other formats.

    What should not happen often (a drop, an expired lease, a failure) is a warning, the rest is
    ``level``.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logging.getLogger("localqueue.events") if logger is None else logger
        self._level = level

    def __call__(self, event: Event) -> None:
        level = max(self._level, logging.WARNING) if _is_unusual(event) else self._level
        if self._logger.isEnabledFor(level):
            line = json.dumps(event.as_dict(), ensure_ascii=False)
            self._logger.log(level, "%s", line, extra={"event": event})


def _is_unusual(event: Event) -> bool:
    return isinstance(event, _UNUSUAL) or getattr(event, "error_type", None) is not None
