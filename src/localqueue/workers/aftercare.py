"""What commits are told when a settlement is durable or refused, or a lease was extended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from localqueue.message import QueueMessage
from localqueue.stores.helper_threads import HelperThreads
from localqueue.stores.threaded import NOBODY

log = logging.getLogger("localqueue.workers")

Care = Callable[[QueueMessage[Any]], object]


class Aftercare:
    """In threads of its own: what commits do may take its time, or never end.

    One thread for each purpose, so that a message that cannot be sent costs no other its key.
    """

    def __init__(self) -> None:
        self._settled = HelperThreads("localqueue-commits")
        self._extended = HelperThreads("localqueue-extensions")
        self._recovered = HelperThreads("localqueue-recovery")
        self._used: set[HelperThreads] = set()
        self._going_on: set[object] = set()

    def start(self, call: Care, message: QueueMessage[Any]) -> None:
        """Returns at once. One message after the other."""
        self._submit(self._settled, partial(_care, call, message))

    def extend(self, call: Care, message: QueueMessage[Any]) -> None:
        """The lease of a message was extended; nothing if the commit is still busy with the last.

        From any thread.
        """
        self._once(self._extended, id(message), partial(_care, call, message))

    def recover(self, name: str, call: Callable[[], object]) -> None:
        """Finish what was left behind in a queue, unless that goes on already."""
        self._once(self._recovered, name, partial(_recover, name, call))

    def _once(self, threads: HelperThreads, key: object, function: Callable[[], object]) -> None:
        def run() -> None:
            try:
                function()
            finally:
                self._going_on.discard(key)

        if key not in self._going_on:
            self._going_on.add(key)
            self._submit(threads, run)

    def _submit(self, threads: HelperThreads, function: Callable[[], object]) -> None:
        self._used.add(threads)
        threads.submit(function, NOBODY)

    def wait(self, seconds: float) -> bool:
        """Until everything that was started has ended; False when that takes longer.

        Then it goes on, as long as the process lives.
        """
        deadline = time.monotonic() + seconds
        ends = []
        for threads in self._used - {self._extended}:
            ends.append(threading.Event())
            threads.submit(ends[-1].set, NOBODY)
        return all(end.wait(max(0.0, deadline - time.monotonic())) for end in ends)


def _care(call: Care, message: QueueMessage[Any]) -> None:
    try:
        call(message)
    except Exception:
        # Whatever is left undone is found by the commit's own recovery.
        log.exception("message %s of %r: its commit failed", message.id, message.queue)


def _recover(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        log.exception("what was left half committed in %r cannot be finished now", name)
