"""What commits are told when a settlement is durable, or refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from localqueue.message import QueueMessage
from localqueue.stores.helper_threads import HelperThreads
from localqueue.stores.threaded import NOBODY

log = logging.getLogger("localqueue.workers")

Care = Callable[[QueueMessage[Any]], object]


class Aftercare:
    """One after the other, in a thread of its own: what commits do may take its time."""

    def __init__(self) -> None:
        self._threads = HelperThreads("localqueue-commits")
        self._is_used = False

    def start(self, call: Care, message: QueueMessage[Any]) -> None:
        """Returns at once."""
        self._is_used = True
        self._threads.submit(partial(_care, call, message), NOBODY)

    def wait(self) -> None:
        """Until everything that was started has ended."""
        if self._is_used:
            ended = threading.Event()
            self._threads.submit(ended.set, NOBODY)
            ended.wait()


def _care(call: Care, message: QueueMessage[Any]) -> None:
    try:
        call(message)
    except Exception:
        # Whatever is left undone is found by the commit's own recovery.
        log.exception("message %s of %r: its commit failed", message.id, message.queue)
