"""Messages that ``get()`` handed out and nobody has settled, for ``task_done`` and ``join``."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from localqueue.message import QueueMessage, Receipt


class Unfinished:
    """Remembers deliveries in the order they were got, and which thread got each.

    A delivery is a message and its token: whoever lost a lease still has only its own to settle.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: dict[Receipt, tuple[int, QueueMessage[Any]]] = {}
        self._claimed: set[Receipt] = set()

    def add(self, message: QueueMessage[Any]) -> None:
        with self._changed:
            self._messages[message.receipt] = (threading.get_ident(), message)

    def claim(self) -> QueueMessage[Any] | None:
        """The oldest of this thread, else the oldest of all, for this thread to settle."""
        with self._changed:
            me = threading.get_ident()
            free = [r for r in self._messages if r not in self._claimed]
            own = (receipt for receipt in free if self._messages[receipt][0] == me)
            receipt = next(own, None) or next(iter(free), None)
            if receipt is None:
                return None
            self._claimed.add(receipt)
            return self._messages[receipt][1]

    def give_back(self, message: QueueMessage[Any]) -> None:
        """It could not be settled: it is still there to be claimed."""
        with self._changed:
            self._claimed.discard(message.receipt)

    def discard(self, receipts: Iterable[Receipt]) -> None:
        """These deliveries are settled; an operator's receipt settles whatever there was."""
        if not self._messages:
            return
        with self._changed:
            for receipt in receipts:
                self._messages.pop(receipt, None)
                self._claimed.discard(receipt)
                if receipt.token is None:
                    for known in [known for known in self._messages if known.id == receipt.id]:
                        del self._messages[known]
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._messages.clear()
            self._claimed.clear()
            self._changed.notify_all()

    def wait_until_empty(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._messages)
