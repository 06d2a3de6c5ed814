"""The queues whose stats belong to the metrics, asked when somebody looks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from localqueue.message import QueueStats
from localqueue.telemetry.subscription import Listener, OnceLogged


class MeasuredQueue(Protocol):
    """What metrics need of a queue."""

    @property
    def name(self) -> str: ...

    def stats(self) -> QueueStats: ...

    def listen(self, listener: Listener) -> Callable[[], None]: ...


class MeasuredQueues:
    """Some queues, each until it is taken away or nobody else has it any more."""

    def __init__(self) -> None:
        self._queues: weakref.WeakSet[MeasuredQueue] = weakref.WeakSet()
        self._log = OnceLogged(self)
        self.renew_locks()
        _everywhere.add(self)

    def add(self, queue: MeasuredQueue, listener: Listener) -> Callable[[], None]:
        """Let the listener hear of this queue, and keep it; returns how to end both."""
        stop_listening = queue.listen(listener)
        with self._lock:
            self._queues.add(queue)
        reference = weakref.ref(queue)

        def stop() -> None:
            stop_listening()
            if (known := reference()) is not None:
                with self._lock:
                    self._queues.discard(known)

        return stop

    def stats(self) -> dict[str, QueueStats]:
        """By name. A queue that cannot be asked, because it was closed, is left out."""
        with self._lock:
            queues = list(self._queues)
        found = {}
        for queue in queues:
            try:
                found[queue.name] = queue.stats()
            except Exception as error:
                # Whoever looks at many queues wants to see the others.
                self._log(error)
        return found

    def renew_locks(self) -> None:
        """In a forked child: whoever held it did not come along."""
        self._lock = threading.Lock()


_everywhere: weakref.WeakSet[MeasuredQueues] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for queues in list(_everywhere):
        queues.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
