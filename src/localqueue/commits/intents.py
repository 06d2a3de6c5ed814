"""A success that has still to be written elsewhere.

Where result, ledger, envelope and acknowledgement do not share a store, there is no transaction for
all of them. An intent in the queue's own store comes first: from then on the handler is not run
again, and a redelivery writes what is missing. It goes with the acknowledgement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from localqueue.commits.home import Home, as_message
from localqueue.commits.keys import Keys
from localqueue.commits.work import Work, about
from localqueue.message import QueueMessage
from localqueue.results.records import decode_result, encode_result
from localqueue.stores.records import Record, RecordChange

KIND = "intent"


class Noted(NamedTuple):
    """A success as an intent has it."""

    message: QueueMessage[Any]
    result: Any


class Intents:
    """The successes of a queue that are not acknowledged yet."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def find(self, message: QueueMessage[Any]) -> Noted | None:
        """The success under the key of this message, if there is one."""
        found = self._home.load(KIND, Keys.of(message).scoped)
        return None if found is None else self._noted(found)

    def write(self, work: Work, together_with: Iterable[RecordChange]) -> None:
        """Now, in one transaction with these."""
        value = encode_result(about(work.message) | {"result": work.result})
        self._home.change(RecordChange(KIND, work.keys.scoped, value), *together_with)

    def removal(self, work: Work) -> RecordChange:
        return RecordChange(KIND, work.keys.scoped, None)

    def left_behind(self) -> Iterator[Noted]:
        """Those whose message will not be delivered again: it is gone, or a dead letter."""
        for record in self._home.scan(KIND, f"{self._home.queue}:"):
            noted = self._noted(record)
            if not self._home.comes_again(noted.message.id):
                yield noted

    def _noted(self, record: Record) -> Noted:
        fields = decode_result(record.value, record.key)
        return Noted(as_message(fields, self._home.queue), fields["result"])
