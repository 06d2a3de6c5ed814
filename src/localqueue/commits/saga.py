"""SagaCommit: steps forward, and when one fails, compensations backward.

    handler ──▶ step 1 ──▶ step 2 ──▶ … ──▶ ack, the saga's record removed
                   │ each is noted            ▲
                   │                          └── after a crash the redelivery goes on here
                   └──raises──▶ compensations of those before it, in reverse ──▶ delivery failed

The record is in the queue's own store and says which steps are done. A step during which the worker
died is run again by the redelivery. When there is none, because the message is a dead letter or was
removed, ``recover`` compensates, and that step too: it may have had its effect.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, replace
from typing import Any

from localqueue.codec import decoder
from localqueue.commits.drawer import Drawer
from localqueue.commits.effects import Resumed
from localqueue.commits.home import Home, as_message
from localqueue.commits.keys import Keys
from localqueue.commits.ledger import LONGEST_WAIT
from localqueue.commits.local_atomic import NoEffects
from localqueue.commits.protocol import Wait
from localqueue.commits.work import Work, about
from localqueue.errors import ConfigurationError, LeaseLost, RecordConflict
from localqueue.failpoints import reach
from localqueue.message import QueueMessage
from localqueue.outcome import describe_error
from localqueue.policies.commit import SagaCommit, SagaStep
from localqueue.results.records import decode_result, encode_result
from localqueue.stores.records import Record, RecordChange

KIND = "saga"
FORWARD = "forward"
BACKWARD = "compensating"
RECOVERY_TAKES = 60.0
"""How long a saga is left to the worker that recovers it."""
log = logging.getLogger("localqueue.commits")


@dataclass(frozen=True, slots=True)
class Saga:
    """How far a saga has come, as its record says."""

    direction: str
    done: tuple[str, ...]
    """Steps whose effect stands, in order."""
    result: Any
    value: str
    codec: str
    message_id: str
    until: float | None = None
    """Somebody recovers it until then, by the wall clock."""
    version: int = 0


class SagaEffects(NoEffects):
    """Runs the steps of a policy, and remembers them."""

    is_idle = False
    acts = True
    shows_result = True

    def __init__(self, policy: SagaCommit, home: Home, *, keyed: bool) -> None:
        self._home = home
        self._keyed = keyed
        """Whether a ledger makes the work of a key one; else a saga is its message's alone."""
        self._steps: tuple[SagaStep, ...] = tuple(policy.steps)
        self._drawer = Drawer(policy.saga_store, home, "saga_store")
        self.is_foreign = not self._drawer.shares
        if self._steps and not home.keeps_records:
            raise ConfigurationError(
                f"the store of queue {home.queue!r} keeps no records, so a crash would forget which"
                " steps of a saga are done; use a store that does"
            )

    def resume(self, message: QueueMessage[Any]) -> Resumed | Wait | None:
        found = self._home.load(KIND, Keys.of(message).scoped) if self._steps else None
        if found is None:
            return None
        saga = self._read(found)
        # After it was read: whoever begins later changes it, and is not overlooked.
        self._home.check_held(message)
        if saga.until is not None and saga.until > self._home.wall():
            return Wait(min(saga.until - self._home.wall(), LONGEST_WAIT))
        if not self._keyed and saga.message_id != message.id:
            # The same key, and other work: what that left is taken back before this begins.
            return None if self._recover(found) else Wait(LONGEST_WAIT)
        # A new version: a delivery that lost its lease and goes on cannot note anything any more.
        saga = self._save(message, replace(saga, until=None))
        if saga.direction == BACKWARD:
            self._compensate(message, saga)
            return None
        self._go_forward(message, saga)
        return Resumed(saga.result)

    def act(self, work: Work) -> None:
        if self._steps:
            body = base64.b64encode(self._home.codec.encode(work.message.value)).decode()
            saga = Saga(FORWARD, (), work.result, body, self._home.codec.id, work.message.id)
            self._go_forward(work.message, self._save(work.message, saga))

    def save_elsewhere(self, work: Work) -> None:
        if self.is_foreign:
            self._drawer.save(work.keys.envelope("saga:forward"), self._forward(work))

    def with_ack(self, work: Work) -> list[RecordChange]:
        key = work.keys.envelope("saga:forward")
        changes = self._drawer.change(key, self._forward(work), passing=True)
        if self._steps:
            changes.append(RecordChange(KIND, work.keys.scoped, None))
        return changes

    def failed(
        self, message: QueueMessage[Any], error: BaseException, final: bool
    ) -> list[RecordChange]:
        if not final:
            return []  # the next delivery may succeed
        key = Keys.of(message).envelope("saga:compensate")
        envelope = about(message) | {"phase": "compensate", "error": describe_error(error)}
        if self.is_foreign:
            self._drawer.save(key, envelope)
        return self._drawer.change(key, envelope, passing=True)

    def recover(self) -> int:
        """Compensate sagas whose message will not be delivered again."""
        recovered = 0
        for record in self._home.scan(KIND, f"{self._home.queue}:") if self._steps else ():
            try:
                recovered += self._recover(record)
            except Exception:
                log.warning(
                    "queue %r: the saga %r cannot be compensated yet; it is tried again later",
                    self._home.queue,
                    record.key,
                    exc_info=True,
                )
        return recovered

    # --- inside ---------------------------------------------------------------------------------
    def _go_forward(self, message: QueueMessage[Any], saga: Saga) -> None:
        for step in self._after(saga.done):
            try:
                step.action(message, saga.result)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._fail(message, saga, error)
                raise
            reach("saga.after-action")
            saga = self._save(message, replace(saga, done=(*saga.done, step.name)))
            reach("saga.after-step")

    def _fail(self, message: QueueMessage[Any], saga: Saga, error: BaseException) -> None:
        try:
            self._compensate(message, self._save(message, replace(saga, direction=BACKWARD)))
        except Exception as broken:
            error.add_note(f"and its compensation failed, which is tried again: {broken!r}")
            log.warning(
                "queue %r: message %s cannot be compensated yet; it is tried again later",
                message.queue,
                message.id,
                exc_info=True,
            )

    def _compensate(self, message: QueueMessage[Any], saga: Saga) -> None:
        reach("saga.before-compensations")
        steps = {step.name: step for step in self._steps}
        while saga.done:
            step = steps.get(saga.done[-1])
            if step is None:
                raise ConfigurationError(
                    f"the saga of message {message.id} has done the step {saga.done[-1]!r}, which"
                    " the policy does not have any more"
                )
            if step.compensation is not None:
                step.compensation(message, saga.result)
            reach("saga.after-compensation")
            saga = self._save(message, replace(saga, done=saga.done[:-1]))
            reach("saga.after-undone")
        self._home.change(RecordChange(KIND, Keys.of(message).scoped, None, saga.version))

    def _after(self, done: tuple[str, ...]) -> tuple[SagaStep, ...]:
        names = tuple(step.name for step in self._steps)
        if names[: len(done)] != done:
            raise ConfigurationError(
                f"a saga has done the steps {', '.join(done)}, with which the policy does not"
                f" begin: {', '.join(names)}"
            )
        return self._steps[len(done) :]

    def _recover(self, record: Record) -> bool:
        fields = decode_result(record.value, record.key)
        saga = self._read(record)
        if self._home.comes_again(saga.message_id):
            return False
        if saga.until is not None and saga.until > self._home.wall():
            return False
        body = base64.b64decode(saga.value)
        value = decoder(saga.codec, self._home.codec).decode(body)
        message = as_message(fields, self._home.queue, value)
        done = saga.done
        if saga.direction == FORWARD:
            done += tuple(step.name for step in self._after(done)[:1])
        until = self._home.wall() + RECOVERY_TAKES
        try:
            saga = self._save(message, replace(saga, direction=BACKWARD, done=done, until=until))
        except LeaseLost:
            return False
        self._compensate(message, saga)
        return True

    def _forward(self, work: Work) -> dict[str, Any]:
        return about(work.message) | {"phase": "forward", "result": work.result}

    def _save(self, message: QueueMessage[Any], saga: Saga) -> Saga:
        """Note it, if nobody else has; the saga with its new version."""
        value = encode_result(
            about(message)
            | {
                "direction": saga.direction,
                "done": list(saga.done),
                "result": saga.result,
                "value": saga.value,
                "codec": saga.codec,
                "until": saga.until,
            }
        )
        key = Keys.of(message).scoped
        try:
            [version] = self._home.change(RecordChange(KIND, key, value, expect=saga.version))
        except RecordConflict as error:
            raise LeaseLost(
                f"another delivery has taken over the saga of message {message.id}"
            ) from error
        return replace(saga, version=version)

    def _read(self, record: Record) -> Saga:
        fields = decode_result(record.value, record.key)
        return Saga(
            fields["direction"],
            tuple(fields["done"]),
            fields["result"],
            fields["value"],
            fields["codec"],
            fields["message_id"],
            fields["until"],
            record.version,
        )
