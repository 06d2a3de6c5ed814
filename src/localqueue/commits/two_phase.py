"""TwoPhaseCommit: nobody commits before all have prepared, and the decision is durable in between.

    prepare each ──▶ decision, with the ack ──▶ commit each ──▶ decision removed
        └── one raises: abort each                └── a crash: recover() commits

The decision is a record of the queue's own store. A transaction that is prepared and has none is
aborted, once the delivery that prepared it has lost its lease: abort is presumed. So that one that
is only slow cannot decide afterwards, whoever aborts writes that down first, where the decision
would be: of the two, one is refused.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from typing import Any

from localqueue.commits.drawer import Drawer
from localqueue.commits.home import Home
from localqueue.commits.later import tried_again_later
from localqueue.commits.local_atomic import NoEffects
from localqueue.commits.work import Work
from localqueue.errors import ConfigurationError, RecordConflict
from localqueue.failpoints import reach
from localqueue.message import QueueMessage
from localqueue.policies.commit import TwoPhaseCommit
from localqueue.results.records import decode_result, encode_result
from localqueue.stores.records import RecordChange

KIND = "decision"
COORDINATOR = "coordinator"
COMMIT = "commit"
ABORT = "abort"
ABORTS_KEPT_FOR = 86_400.0
"""Longer than any delivery can go on without its lease."""
log = logging.getLogger("localqueue.commits")


class TwoPhaseEffects(NoEffects):
    """The coordinator of the participants."""

    is_idle = False
    acts = True
    shows_result = True

    def __init__(self, policy: TwoPhaseCommit, home: Home) -> None:
        self._home = home
        self._participants = policy.participants
        self._prepares = Drawer(policy.prepare_store, home, "prepare_store")
        self._commits = Drawer(policy.commit_store, home, "commit_store")
        self.is_foreign = not self._commits.shares
        if self._participants and not home.keeps_records:
            raise ConfigurationError(
                f"the store of queue {home.queue!r} keeps no records, so a crash would lose the"
                " decision of a two-phase commit; use a store that does"
            )
        self._name = self._coordinator() if self._participants else ""

    def act(self, work: Work) -> None:
        key = work.keys.envelope("prepare")
        envelope = work.envelope() | {"phase": "prepare"}
        if self._prepares.shares:
            self._home.change(*self._prepares.change(key, envelope, passing=True))
        else:
            self._prepares.save(key, envelope)
        reach("two-phase.after-prepare-envelope")
        transaction = self._transaction(work.message)
        try:
            for participant in self._participants:
                participant.prepare(transaction, work.message, work.result)
                reach("two-phase.after-prepare")
        except Exception:
            self._end_now_or_later(transaction)
            raise

    def decided(self, work: Work) -> list[RecordChange]:
        if not self._participants:
            return []
        return [_decision(self._key(work.message), COMMIT, self._transaction(work.message))]

    def save_elsewhere(self, work: Work) -> None:
        if self.is_foreign:
            self._commits.save(work.keys.envelope("commit"), work.envelope() | {"phase": "commit"})

    def with_ack(self, work: Work) -> list[RecordChange]:
        envelope = work.envelope() | {"phase": "commit"}
        return self._commits.change(work.keys.envelope("commit"), envelope, passing=True)

    def settled(self, message: QueueMessage[Any]) -> None:
        self._commit_decided(f"{message.queue}:{message.id}:")

    def dropped(self, message: QueueMessage[Any]) -> None:
        if self._participants:
            self._end_now_or_later(self._transaction(message))

    def recover(self) -> int:
        if not self._participants:
            return 0
        # Those in doubt first: what is decided meanwhile is found by the second look.
        ended = sum(self._end_now_or_later(transaction) for transaction in self._left_in_doubt())
        return ended + self._commit_decided(f"{self._home.queue}:")

    # --- inside ---------------------------------------------------------------------------------
    def _commit_decided(self, prefix: str) -> int:
        committed = 0
        for record in self._home.scan(KIND, prefix) if self._participants else ():
            with tried_again_later(self._home.queue, f"the decision {record.key} is not done"):
                fields = decode_result(record.value, record.key)
                if fields["decision"] == COMMIT and self._tell_all(fields["transaction"], COMMIT):
                    self._home.change(RecordChange(KIND, record.key, None))
                    committed += 1
        return committed

    def _left_in_doubt(self) -> Iterator[str]:
        """Prepared transactions of this queue whose delivery has lost its lease."""
        found: dict[str, None] = {}
        for participant in self._participants:
            with tried_again_later(self._home.queue, "a participant does not say what is in doubt"):
                found |= dict.fromkeys(participant.in_doubt())
        for transaction in found:
            coordinator, _, rest = transaction.partition(":")
            message_id, _, token = rest.partition(":")
            # Another coordinator's is another coordinator's business.
            is_own = coordinator == self._name and token.isdecimal()
            with tried_again_later(self._home.queue, f"{transaction} cannot be looked at"):
                if is_own and not self._home.is_held(message_id, int(token)):
                    yield transaction

    def _end_now_or_later(self, transaction: str) -> bool:
        with tried_again_later(self._home.queue, f"{transaction} cannot be aborted"):
            return self._end_undecided(transaction)
        return False

    def _end_undecided(self, transaction: str) -> bool:
        """Abort it, unless it was decided to commit; then that is left to ``_commit_decided``."""
        _, message_id, token = transaction.split(":")
        key = f"{self._home.queue}:{message_id}:{token}"
        try:
            self._home.change(_decision(key, ABORT, transaction, ttl=ABORTS_KEPT_FOR))
        except RecordConflict:
            found = self._home.load(KIND, key)
            if found is not None and decode_result(found.value, key)["decision"] == COMMIT:
                return False
        reach("two-phase.after-abort-decision")
        return self._tell_all(transaction, ABORT)

    def _tell_all(self, transaction: str, what: str) -> bool:
        told = True
        for participant in self._participants:
            try:
                if what == COMMIT:
                    participant.commit(transaction)
                else:
                    participant.abort(transaction)
                reach(f"two-phase.after-{what}")
            except Exception:
                told = False
                log.warning(
                    "queue %r: a participant did not %s %s; it is told again later",
                    self._home.queue,
                    what,
                    transaction,
                    exc_info=True,
                )
        return told

    def _transaction(self, message: QueueMessage[Any]) -> str:
        """One per delivery: what is presumed aborted of one must not touch the next."""
        return f"{self._name}:{message.id}:{message.token}"

    def _key(self, message: QueueMessage[Any]) -> str:
        return f"{message.queue}:{message.id}:{message.token}"

    def _coordinator(self) -> str:
        """The name of this queue among all that use the participants, made once."""
        while True:
            found = self._home.load(COORDINATOR, self._home.queue)
            if found is not None:
                return found.value.decode()
            made = RecordChange(
                COORDINATOR, self._home.queue, secrets.token_hex(8).encode(), expect=0
            )
            try:
                self._home.change(made)
            except RecordConflict:
                pass  # another process was faster


def _decision(key: str, decision: str, transaction: str, ttl: float | None = None) -> RecordChange:
    value = encode_result({"decision": decision, "transaction": transaction})
    return RecordChange(KIND, key, value, expect=0, ttl=ttl)
