"""Decorators that make a function a worker: one call handles one message."""

from localqueue.worker.decorators import persistent_async_worker, persistent_worker

__all__ = ["persistent_async_worker", "persistent_worker"]
