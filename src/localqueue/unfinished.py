"""Messages that ``get()`` handed out and nobody has settled, for ``task_done`` and ``join``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from localqueue.message import QueueMessage, Receipt


class Unfinished:
    """Remembers deliveries in the order they were got, and which thread or task got each.

    A delivery is a message and its token: whoever lost a lease still has only its own to settle.
    """

    def __init__(self) -> None:
        self._messages: dict[Receipt, tuple[object, QueueMessage[Any]]] = {}
        self._claimed: set[Receipt] = set()
        self._listeners: list[Callable[[], object]] = []
        self.renew_locks()

    def renew_locks(self) -> None:
        """In a forked child: whoever held them did not come along."""
        self._changed = threading.Condition()

    def add(self, message: QueueMessage[Any], owner: object) -> None:
        with self._changed:
            self._messages[message.receipt] = (owner, message)

    def claim(self, owner: object) -> QueueMessage[Any] | None:
        """The oldest of this owner, else the oldest of all, to be settled by whoever asks."""
        with self._changed:
            free = [r for r in self._messages if r not in self._claimed]
            own = (receipt for receipt in free if self._messages[receipt][0] == owner)
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
            self._tell_if_empty()

    def clear(self) -> None:
        with self._changed:
            self._messages.clear()
            self._claimed.clear()
            self._tell_if_empty()

    def wait_until_empty(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._messages)

    def when_empty(self, listener: Callable[[], object]) -> Callable[[], object]:
        """Call the listener once, from any thread, when nothing is left; how to take it back."""
        with self._changed:
            if self._messages:
                self._listeners.append(listener)
                return lambda: self._forget(listener)
        listener()
        return lambda: None

    def _forget(self, listener: Callable[[], object]) -> None:
        with self._changed:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _tell_if_empty(self) -> None:
        if not self._messages:
            self._changed.notify_all()
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                listener()
