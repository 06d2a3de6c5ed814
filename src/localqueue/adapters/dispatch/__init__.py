"""Ways to run handlers after a put. All have ``close`` and work in ``with``."""

from localqueue.adapters.dispatch.callback import CallbackDispatcher

__all__ = ["CallbackDispatcher"]
