"""A success that has still to be written elsewhere.

Where result, ledger, envelope and acknowledgement do not share a store, there is no transaction for
all of them. An intent in the queue's own store comes first: from then on the handler is not run
again, and a redelivery writes what is missing. It goes with the acknowledgement. Where there will
be no redelivery ``recover`` writes it: whoever does takes the intent first, by compare-and-set, so
that one that was acknowledged meanwhile is not written once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from localqueue.commits.home import Home, as_message
from localqueue.commits.keys import Keys
from localqueue.commits.later import tried_again_later
from localqueue.commits.work import Work, about
from localqueue.errors import RecordConflict
from localqueue.message import QueueMessage
from localqueue.results.records import decode_result, encode_result
from localqueue.stores.records import Record, RecordChange

KIND = "intent"
RECOVERY_TAKES = 60.0
"""How long an intent is left to the worker that recovers it."""


class Noted(NamedTuple):
    """A success as an intent has it."""

    message: QueueMessage[Any]
    result: Any
    until: float | None
    """Somebody recovers it until then, by the wall clock."""
    version: int


class Intents:
    """The successes of a queue that are not acknowledged yet."""

    def __init__(self, home: Home, *, keyed: bool) -> None:
        self._home = home
        self._keyed = keyed
        """Whether a ledger makes the work of a key one; else only a message knows its own."""

    def find(self, message: QueueMessage[Any]) -> Noted | None:
        """The success of this message, or with a ledger of its key, if there is one."""
        found = self._home.load(KIND, self._key(message))
        return None if found is None else self._noted(found)

    def write(self, work: Work, together_with: Iterable[RecordChange]) -> None:
        """Now, in one transaction with these."""
        self._home.change(self._change(work.message, work.result), *together_with)

    def removal(self, message: QueueMessage[Any], expect: int | None = None) -> RecordChange:
        return RecordChange(KIND, self._key(message), None, expect)

    def left_behind(self) -> Iterator[Noted]:
        """Those whose message will not be delivered again: it is gone, or a dead letter."""
        for record in self._home.scan(KIND, f"{self._home.queue}:"):
            with tried_again_later(self._home.queue, f"the intent {record.key!r} cannot be read"):
                noted = self._noted(record)
                if not self.seconds_taken(noted) and not self._home.comes_again(noted.message.id):
                    yield noted

    def seconds_taken(self, noted: Noted) -> float:
        """How long somebody recovers it still; 0 when nobody does."""
        return 0.0 if noted.until is None else max(0.0, noted.until - self._home.wall())

    def take(self, noted: Noted) -> Noted | None:
        """Leave it to this worker for a while; None when it is not there any more as it was."""
        return self._replace(noted, self._home.wall() + RECOVERY_TAKES)

    def give_back(self, taken: Noted) -> None:
        self._replace(taken, None)

    def _replace(self, noted: Noted, until: float | None) -> Noted | None:
        change = self._change(noted.message, noted.result, until, noted.version)
        try:
            [version] = self._home.change(change)
        except RecordConflict:
            return None
        return noted._replace(until=until, version=version)

    def _change(
        self,
        message: QueueMessage[Any],
        result: Any,
        until: float | None = None,
        expect: int | None = None,
    ) -> RecordChange:
        value = encode_result(about(message) | {"result": result, "until": until})
        return RecordChange(KIND, self._key(message), value, expect)

    def _key(self, message: QueueMessage[Any]) -> str:
        keys = Keys.of(message) if self._keyed else Keys.of_one(message)
        return keys.scoped

    def _noted(self, record: Record) -> Noted:
        fields = decode_result(record.value, record.key)
        message = as_message(fields, self._home.queue)
        return Noted(message, fields["result"], fields.get("until"), record.version)
