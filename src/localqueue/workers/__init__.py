"""Workers: they lease messages, run handlers and settle what comes of it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localqueue.rule import Backoff
    from localqueue.workers.context import CurrentMessage, current_message
    from localqueue.workers.summary import Summary
    from localqueue.workers.worker import Worker

__all__ = ["Backoff", "CurrentMessage", "Summary", "Worker", "current_message"]

# Loaded when asked for: the keeper of a worker is a process of its own, and needs little of this.
_HOMES = {
    "Backoff": "localqueue.rule",
    "CurrentMessage": "localqueue.workers.context",
    "Summary": "localqueue.workers.summary",
    "Worker": "localqueue.workers.worker",
    "current_message": "localqueue.workers.context",
}

if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
