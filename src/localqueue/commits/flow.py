"""The steps around a success, in an order in which a crash between any two of them loses nothing.

Where everything shares the queue's store, ledger, result and effects are written with the
acknowledgement, and there is one step. Otherwise:

    intent ──▶ result ──▶ effects elsewhere ──▶ ledger ──▶ acknowledgement with the rest
       └── a redelivery finds it and goes on here, without running the handler
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from localqueue.commits.effects import Effects, Resumed
from localqueue.commits.home import Home
from localqueue.commits.intents import Intents, Noted
from localqueue.commits.kept_results import KeptResults
from localqueue.commits.keys import Keys
from localqueue.commits.later import tried_again_later
from localqueue.commits.ledger import LONGEST_WAIT, Ledger
from localqueue.commits.protocol import NOTHING, Done, Extras, Run, Wait
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
        keyed = ledger is not None
        self._intents = Intents(home, keyed=keyed) if self._needs_intents() else None

    def begin(self, message: QueueMessage[Any]) -> Run | Done | Wait:
        noted = self._noted(message)
        if noted is not None:
            return self._go_on(message, noted)
        if self._ledger is None:
            self._home.check_held(message)
        else:
            match self._ledger.claim(message):
                case Wait() as wait:
                    return wait
                case None:
                    reach("commit.after-claim")
                case record:
                    log.info(
                        "queue %r: message %s is acknowledged without its handler, the work of the"
                        " key %r is done; values are not compared",
                        message.queue,
                        message.id,
                        Keys.of(message).key,
                    )
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
        elif self._intents is not None or self._effects.acts:
            # Nothing else keeps out a delivery that is over.
            self._home.check_owned(message)
        work = self._work(message, result)
        if self._passes_result_on():
            # Before anything is done that would have to be undone.
            encode_result(result)
        self._effects.act(work)
        reach("commit.after-effects")
        return self._conclude(work)

    def settled(self, message: QueueMessage[Any]) -> None:
        reach("commit.after-ack")
        with self._later(message, "what follows its success cannot be done yet"):
            self._effects.settled(message)

    def failure(self, message: QueueMessage[Any], error: BaseException, final: bool) -> Extras:
        noted = self._noted(message)
        if noted is not None and noted.message.id == message.id:
            # It failed after the point of no return: the work has succeeded, and is gone on with.
            self.dropped(message)
            return NOTHING
        changes = self._effects.failed(message, error, final)
        if self._ledger is not None:
            changes += self._ledger.failure(message, error)
        return Extras(tuple(changes))

    def extended(self, message: QueueMessage[Any], seconds: float) -> None:
        if self._ledger is not None:
            with self._later(message, "its ledger cannot be told that the lease goes on"):
                self._ledger.extended(message, seconds)

    def dropped(self, message: QueueMessage[Any]) -> None:
        with self._later(message, "what it began cannot be undone yet"):
            self._effects.dropped(message)

    def recover(self) -> int:
        recovered = 0
        with tried_again_later(self._home.queue, "unfinished successes cannot be looked for"):
            for noted in () if self._intents is None else self._intents.left_behind():
                with self._later(noted.message, "its success cannot be written everywhere yet"):
                    recovered += self._recover(noted)
        with tried_again_later(self._home.queue, "unfinished effects cannot be looked for"):
            recovered += self._effects.recover()
        return recovered

    # --- inside ---------------------------------------------------------------------------------
    def _later(self, message: QueueMessage[Any], what: str) -> AbstractContextManager[None]:
        return tried_again_later(message.queue, f"message {message.id}: {what}")

    def _go_on(self, message: QueueMessage[Any], noted: Noted) -> Done | Wait:
        """The success of an earlier delivery is noted: write what is missing."""
        assert self._intents is not None
        self._home.check_held(message)
        seconds = self._intents.seconds_taken(noted)
        if seconds > 0:
            return Wait(min(seconds, LONGEST_WAIT))
        changes = self._finish(self._work(message, noted.result))
        extras = Extras((self._intents.removal(message), *changes))
        return Done(self._results.answer(noted.result), extras)

    def _recover(self, noted: Noted) -> bool:
        """Write what is missing, unless somebody else has, or does it just now."""
        assert self._intents is not None
        taken = self._intents.take(noted)
        if taken is None:
            return False
        try:
            changes = self._finish(self._work(taken.message, taken.result))
            self._home.change(self._intents.removal(taken.message, taken.version), *changes)
        except Exception:
            self._intents.give_back(taken)
            raise
        return True

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
        return None if self._intents is None else self._intents.find(message)

    def _conclude(self, work: Work) -> Extras:
        decided = self._effects.decided(work)
        if self._intents is None:
            return Extras((*decided, *self._finish(work)))
        self._intents.write(work, decided)
        reach("commit.after-intent")
        changes = self._finish(work)
        return Extras((self._intents.removal(work.message), *changes))

    def _finish(self, work: Work) -> list[RecordChange]:
        """Write what shares no transaction with the acknowledgement; what is left for it."""
        self._results.save_elsewhere(work)
        reach("commit.after-result")
        self._effects.save_elsewhere(work)
        reach("commit.after-envelope")
        changes = self._results.with_ack(work)
        changes += self._effects.with_ack(work)
        if self._ledger is not None:
            result_key = self._results.ledger_key(work.keys)
            if self._ledger.shares:
                changes += self._ledger.success(work.message, result_key, work.result)
            else:
                self._ledger.save_success(work.message, result_key, work.result)
                reach("commit.after-ledger")
        return changes
