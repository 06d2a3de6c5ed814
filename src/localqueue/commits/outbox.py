"""TransactionalOutboxCommit: an envelope with the acknowledgement, sent afterwards by a relay.

    ack + envelope + note who sends it ──▶ relay(envelope) ──▶ envelope and note removed

The worker that acknowledged sends. When it dies, or the relay raises, the note is still there, and
any worker's ``recover`` sends: at least once, always with the same key. An outbox of the user's has
no transaction with the note: there the note says that the envelope is sent before it is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from localqueue.commits.author import is_gone, this_process
from localqueue.commits.drawer import Drawer
from localqueue.commits.home import Home
from localqueue.commits.keys import Keys, all_envelopes
from localqueue.commits.later import tried_again_later
from localqueue.commits.local_atomic import NoEffects
from localqueue.commits.work import Work
from localqueue.errors import ConfigurationError, RecordConflict
from localqueue.failpoints import reach
from localqueue.message import QueueMessage
from localqueue.policies.commit import TransactionalOutboxCommit
from localqueue.results.records import decode_result, encode_result
from localqueue.stores.records import Record, RecordChange

KIND = "relay"
PATIENCE = 60.0
"""How long an envelope is left to a worker of which nobody can tell whether it still lives."""
log = logging.getLogger("localqueue.commits")
_about_to_send: set[tuple[str, str]] = set()
"""Stores and envelopes: those that workers of this process acknowledge and send just now."""


class OutboxEffects(NoEffects):
    """The envelope, and who sends it."""

    is_idle = False
    shows_result = True

    def __init__(self, policy: TransactionalOutboxCommit, home: Home, *, keyed: bool) -> None:
        self._home = home
        self._keyed = keyed
        """Whether a ledger makes the work of a key one; else each message has its envelope."""
        self._relay = policy.relay
        self._drawer = Drawer(policy.outbox_store, home, "outbox_store")
        self.is_foreign = not self._drawer.shares
        if self._relay is not None and not home.keeps_records:
            raise ConfigurationError(
                f"the store of queue {home.queue!r} keeps no records of what the relay has still to"
                " send; leave relay= out, and send from the outbox store yourself"
            )

    def save_elsewhere(self, work: Work) -> None:
        if self.is_foreign:
            self._drawer.save(self._key(work.message), work.envelope())

    def with_ack(self, work: Work) -> list[RecordChange]:
        key = self._key(work.message)
        changes = self._drawer.change(key, work.envelope())
        if self._relay is not None:
            _about_to_send.add((self._home.place, key))
            note = {"by": this_process(), "at": self._home.when.now()}
            changes.append(RecordChange(KIND, key, encode_result(note)))
        return changes

    def settled(self, message: QueueMessage[Any]) -> None:
        if self._relay is not None:
            key = self._key(message)
            try:
                self._send(key, self._relay)
            finally:
                self._forget(key)

    def dropped(self, message: QueueMessage[Any]) -> None:
        self._forget(self._key(message))

    def recover(self) -> int:
        if self._relay is None:
            return 0
        sent = 0
        for record in self._home.scan(KIND, all_envelopes("outbox", self._home.queue)):
            with tried_again_later(self._home.queue, f"the note {record.key!r} cannot be read"):
                sent += self._is_left(record) and self._send(record.key, self._relay)
        return sent

    def _key(self, message: QueueMessage[Any]) -> str:
        keys = Keys.of(message) if self._keyed else Keys.of_one(message)
        return keys.envelope("outbox")

    def _is_left(self, note: Record) -> bool:
        """Whether nobody else is about to send it."""
        fields = decode_result(note.value, note.key)
        if fields["by"] == this_process():
            if (self._home.place, note.key) not in _about_to_send:
                return True
        elif is_gone(fields["by"]):
            return True
        return bool(self._home.when.now() - fields["at"] > PATIENCE)

    def _send(self, key: str, relay: Callable[[dict[str, Any]], object]) -> bool:
        try:
            note = self._home.load(KIND, key)
            if note is None:
                return False
            fields = decode_result(note.value, key)
            envelope = None if fields.get("sent") else self._drawer.load(key)
            if envelope is not None:
                relay(envelope)
                reach("outbox.after-relay")
            self._remove(key, note, fields)
        except RecordConflict:
            pass  # somebody else has sent it too
        except Exception:
            log.warning(
                "queue %r: the envelope %r was not relayed; it is tried again later",
                self._home.queue,
                key,
                exc_info=True,
            )
            return False
        return True

    def _remove(self, key: str, note: Record, fields: dict[str, Any]) -> None:
        """RecordConflict when the note is not the one that was sent: another envelope is there."""
        version = note.version
        if self.is_foreign:
            sent = encode_result(fields | {"sent": True})
            [version] = self._home.change(RecordChange(KIND, key, sent, version))
            reach("outbox.after-sent")
            self._drawer.delete(key)
            reach("outbox.after-delete")
        gone = RecordChange(KIND, key, None, version)
        self._home.change(*self._drawer.removal(key), gone)

    def _forget(self, key: str) -> None:
        _about_to_send.discard((self._home.place, key))
