"""Ways to run handlers after a put. All have ``close`` and work in ``with``."""

from localqueue.adapters.dispatch.callback import CallbackDispatcher
from localqueue.adapters.dispatch.leasing import ThreadedDispatcher, WorkerPoolDispatcher

__all__ = ["CallbackDispatcher", "ThreadedDispatcher", "WorkerPoolDispatcher"]
