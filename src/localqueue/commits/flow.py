"""The steps around a success, in an order in which a crash between any two of them loses nothing.

Where everything shares the queue's store, ledger, result and effects are written with the
acknowledgement, and there is one step. Otherwise:

    intent ──▶ result ──▶ effects elsewhere ──▶ ledger ──▶ acknowledgement with the rest
       └── a redelivery finds it and goes on here, without running the handler
"""

from __future__ import annotations

import logging
from typing import Any

from localqueue.commits.effects import Effects, Resumed
from localqueue.commits.home import Home
from localqueue.commits.intents import Intents, Noted
from localqueue.commits.kept_results import KeptResults
from localqueue.commits.keys import Keys
from localqueue.commits.ledger import Ledger
from localqueue.commits.protocol import Done, Extras, Run, Wait
from localqueue.commits.work import Work
from localqueue.failpoints import reach
from localqueue.message import QueueMessage
from localqueue.results.records import encode_result
from localqueue.stores.records import RecordChange

log = logging.getLogger("localqueue.commits")


class Flow:
    """The commit of every policy of the library: a ledger, results, and the policy's effects."""

    def __init__(
        self, home: Home, ledger: Ledger | None, results: KeptResults, effects: Effects
    ) -> None:
        self._home = home
        self._ledger = ledger
        self._results = results
        self._effects = effects
        self._intents = Intents(home) if self._needs_intents() else None

    def begin(self, message: QueueMessage[Any]) -> Run | Done | Wait:
        noted = self._noted(message)
        if noted is not None:
            changes = self._finish(self._work(message, noted.result))
            return Done(self._results.answer(noted.result), Extras(tuple(changes)))
        if self._ledger is not None:
            match self._ledger.claim(message):
                case Wait() as wait:
                    return wait
                case None:
                    reach("commit.after-claim")
                case record:
                    return Done(self._results.recall(record))
        match self._effects.resume(message):
            case Wait() as wait:
                return wait
            case Resumed(result):
                extras = self._conclude(self._work(message, result))
                return Done(self._results.answer(result), extras)
        return Run()

    def success(self, message: QueueMessage[Any], result: Any) -> Extras:
        if self._ledger is not None:
            self._ledger.check_held(message)
        work = self._work(message, result)
        if self._passes_result_on():
            # Before anything is done that would have to be undone.
            encode_result(result)
        self._effects.act(work)
        reach("commit.after-effects")
        return self._conclude(work)

    def settled(self, message: QueueMessage[Any]) -> None:
        reach("commit.after-ack")
        self._effects.settled(message)

    def failure(self, message: QueueMessage[Any], error: BaseException, final: bool) -> Extras:
        changes = self._effects.failed(message, error)
        if self._ledger is not None:
            changes += self._ledger.failure(message, error)
        return Extras(tuple(changes))

    def extended(self, message: QueueMessage[Any], seconds: float) -> None:
        if self._ledger is not None:
            self._ledger.extended(message, seconds)

    def dropped(self, message: QueueMessage[Any]) -> None:
        self._effects.dropped(message)

    def recover(self) -> int:
        recovered = 0
        for noted in () if self._intents is None else self._intents.left_behind():
            try:
                changes = self._finish(self._work(noted.message, noted.result))
                self._home.change(*changes)
                recovered += 1
            except Exception:
                log.warning(
                    "queue %r: the success of message %s cannot be written everywhere yet",
                    self._home.queue,
                    noted.message.id,
                    exc_info=True,
                )
        return recovered + self._effects.recover()

    # --- inside ---------------------------------------------------------------------------------
    def _needs_intents(self) -> bool:
        if not self._home.keeps_records:
            return False
        ledger_apart = self._ledger is not None and not self._ledger.shares
        only_the_ledger = self._effects.is_idle and not self._results.is_apart_from_ledger
        return (
            (ledger_apart and not only_the_ledger)
            or self._results.is_foreign
            or self._effects.is_foreign
        )

    def _passes_result_on(self) -> bool:
        return self._results.stores or self._effects.shows_result

    def _work(self, message: QueueMessage[Any], result: Any) -> Work:
        kept = result if self._passes_result_on() else None
        return Work(message, kept, self._results.store_key(Keys.of(message)))

    def _noted(self, message: QueueMessage[Any]) -> Noted | None:
        noted = None if self._intents is None else self._intents.find(message)
        # Without a ledger a key may come again: then only the message itself is recognised.
        if noted is None or (self._ledger is None and noted.message.id != message.id):
            return None
        return noted

    def _conclude(self, work: Work) -> Extras:
        decided = self._effects.decided(work)
        if self._intents is None:
            return Extras((*decided, *self._finish(work)))
        self._intents.write(work, decided)
        reach("commit.after-intent")
        return Extras(tuple(self._finish(work)))

    def _finish(self, work: Work) -> list[RecordChange]:
        """Write what shares no transaction with the acknowledgement; what is left for it."""
        self._results.save_elsewhere(work)
        reach("commit.after-result")
        self._effects.save_elsewhere(work)
        reach("commit.after-envelope")
        changes = [] if self._intents is None else [self._intents.removal(work)]
        changes += self._results.with_ack(work)
        changes += self._effects.with_ack(work)
        if self._ledger is not None:
            result_key = self._results.ledger_key(work.keys)
            if self._ledger.shares:
                changes += self._ledger.success(work.message, result_key, work.result)
            else:
                self._ledger.save_success(work.message, result_key, work.result)
                reach("commit.after-ledger")
        return changes
