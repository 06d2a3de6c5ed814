"""Tells a commit that a lease was extended, without letting anybody wait for it."""

from __future__ import annotations

import logging
from typing import Any

from localqueue.commits.protocol import Commit
from localqueue.message import QueueMessage
from localqueue.stores.helper_threads import HelperThreads

log = logging.getLogger("localqueue.workers")

MOST_THREADS = 8
"""For the ledgers that are slow to answer; who shares a store with its queue needs none."""

_threads = HelperThreads("localqueue-ledger", MOST_THREADS)


class Extensions:
    """Those of one delivery. One is told at a time: while it is, others need not be."""

    def __init__(self, commit: Commit, message: QueueMessage[Any], seconds: float) -> None:
        self._commit = commit
        self._message = message
        self._seconds = seconds
        self._under_way = False
        self._ended = False

    def extended(self) -> None:
        """From any thread, after the lease was extended. Does not block."""
        if not self._under_way and not self._ended:
            self._under_way = True
            _threads.submit(lambda: self._commit.extended(self._message, self._seconds), self)

    def end(self) -> None:
        """The message is settled: what was not told by now needs not be."""
        self._ended = True

    # --- a listener of the helper thread --------------------------------------------------------
    def taken(self) -> bool:
        if self._ended:
            self._under_way = False
        return not self._ended

    def finished(self, call: Any) -> None:
        self._under_way = False
        if call.error is not None:
            log.warning(
                "message %s of %r: its commit was not told that the lease goes on",
                self._message.id,
                self._message.queue,
                exc_info=call.error,
            )

    def tell(self) -> None:
        """Nobody waits."""
