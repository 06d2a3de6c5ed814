"""Handlers in threads: what one runner does, and several of them at once."""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from localqueue.commits.protocol import Commit
from localqueue.errors import LocalQueueError
from localqueue.message import QueueMessage
from localqueue.workers.context import Slot, nothing_runs
from localqueue.workers.driver import Hand, Hands
from localqueue.workers.execution import INTERRUPTS, Execution
from localqueue.workers.foreman import Foreman
from localqueue.workers.liveness import Liveness
from localqueue.workers.returned import refuse_undone
from localqueue.workers.shift import Shift


class InThread:
    """Calls the handler in the runner's own thread, which nobody can stop from outside."""

    def __init__(self, handler: Callable[[Any], Any]) -> None:
        self._handler = handler

    def prepare(self) -> bool:
        return True

    def call(self, message: QueueMessage[Any]) -> Any:
        result = self._handler(message.value)
        if result is not None:
            refuse_undone(result)
        return result

    def interrupt(self, error: LocalQueueError) -> None:
        """Nothing: the handler was told."""

    def close(self) -> None:
        """Nothing is held."""


class Runner:
    """Takes what is pending, and runs one message after the other."""

    def __init__(
        self, shift: Shift, execution: Execution, liveness: Liveness, hands: Hands
    ) -> None:
        self._shift = shift
        self._execution = execution
        self._liveness = liveness
        self._hands = hands

    def work(self, slot: Slot) -> None:
        """Run one message after the other, until there is no more work."""
        hand = self._hands(slot)
        slot.interrupt = hand.interrupt
        try:
            self._work(slot, hand)
        finally:
            slot.rest()
            if not slot.is_left:
                self._liveness.end(slot.number)
            nothing_runs()
            hand.close()

    def _work(self, slot: Slot, hand: Hand) -> None:
        execution, call, number = self._execution, hand.call, slot.number
        prepare = hand.prepare
        take, done = self._shift.pending.popleft, self._shift.acks.append
        begin, simple = self._liveness.begin, False
        shutdown = self._shift.shutdown
        while True:
            try:
                message = take()
            except IndexError:
                if self._waits_for_more(slot):
                    simple = execution.is_simple()
                    continue
                return
            if shutdown.deadline is not None and execution.turns_away(message):
                continue
            if not prepare():
                execution.give_back(message)
                continue
            slot.begin(message)
            begin(number, message.id)
            try:
                # First: from here on the main thread may be interrupted.
                slot.inside = True
                if simple:
                    result = call(message)
                else:
                    source = execution.source(message)
                    if source.commit is not None and not self._begins(slot, message, source.commit):
                        slot.inside = False
                        continue
                    with execution.around(source, message):
                        result = call(message)
                slot.inside = False
            except BaseException as error:
                slot.inside = False
                if slot.ends(message):
                    execution.failure(slot, message, error)
                elif slot.is_left:
                    return
                if isinstance(error, INTERRUPTS):
                    raise
                continue
            if simple and slot.current is None:
                done(message)
            elif slot.ends(message):
                execution.success(slot, message, result)
            elif slot.is_left:
                return

    def _begins(self, slot: Slot, message: QueueMessage[Any], commit: Commit) -> bool:
        slot.beginning = True
        try:
            return self._execution.begin(message, commit)
        finally:
            slot.beginning = False

    @abstractmethod
    def _waits_for_more(self, slot: Slot) -> bool:
        """Until something is pending; False when there will be nothing any more."""


class Lobby:
    """Where runners in threads of their own wait for messages."""

    def __init__(self, shift: Shift, liveness: Liveness) -> None:
        self._shift = shift
        self._liveness = liveness
        self._more = threading.Condition()
        self._dismissed = False

    @abstractmethod
    def work(self, slot: Slot) -> None:
        """Run one message after the other, until there is no more work. In a thread of its own."""

    def give(self, messages: Sequence[QueueMessage[Any]]) -> None:
        with self._more:
            self._shift.pending.extend(messages)
            self._more.notify(len(messages))

    def dismiss(self) -> None:
        with self._more:
            self._dismissed = True
            self._more.notify_all()

    def _waits_for_more(self, slot: Slot) -> bool:
        slot.sleep()
        self._liveness.end(slot.number)
        self._shift.bell.ring()
        try:
            with self._more:
                self._more.wait_for(lambda: self._shift.pending or self._dismissed)
                return bool(self._shift.pending) or not self._dismissed
        finally:
            slot.wake()


class ThreadCrew(Lobby, Runner):
    """Several runners, each in its own thread."""

    def __init__(
        self, shift: Shift, execution: Execution, liveness: Liveness, hands: Hands
    ) -> None:
        Lobby.__init__(self, shift, liveness)
        Runner.__init__(self, shift, execution, liveness, hands)

    def work(self, slot: Slot) -> None:
        Runner.work(self, slot)


class ThreadDriver:
    """The foreman in a thread of its own, and the runners in others.

    They are daemons: nobody waits for one whose handler does not end.
    """

    def __init__(self, shift: Shift, crew: Lobby, foreman: Foreman) -> None:
        self._shift = shift
        self._crew = crew
        self._foreman = foreman
        self._error: BaseException | None = None

    def run(self) -> None:
        leading = threading.Thread(target=self._lead, name="localqueue-foreman", daemon=True)
        leading.start()
        try:
            for slot in list(self._shift.slots):
                self._start(slot)
            leading.join()
        except BaseException as error:
            self._shift.shutdown.at_once(error)
            leading.join()
            raise
        if self._error is not None:
            raise self._error
        if self._shift.shutdown.reason is not None:
            raise self._shift.shutdown.reason

    def replace(self, slot: Slot) -> str | None:
        """Leave the runner of this slot behind with its handler, and start another; why that cannot
        be, and then nothing has changed. For the foreman."""
        given: SimpleQueue[Slot | None] = SimpleQueue()
        try:
            # First: a place that was left and that nobody takes would be one less for ever.
            self._start_thread(slot.number, self._work_if_given, given)
        except RuntimeError as error:
            return str(error)
        given.put(self._shift.leave(slot))
        return None

    def _work_if_given(self, given: SimpleQueue[Slot | None]) -> None:
        slot = given.get()
        # None: the handler has ended after all.
        if slot is not None:
            self._work(slot)

    def _start(self, slot: Slot) -> None:
        self._start_thread(slot.number, self._work, slot)

    def _start_thread(self, number: int, work: Callable[[Any], None], given: Any) -> None:
        name = f"localqueue-worker-{number}"
        threading.Thread(target=work, args=(given,), name=name, daemon=True).start()

    def _lead(self) -> None:
        try:
            asyncio.run(self._foreman.run())
        except BaseException as error:
            self._error = error
            self._crew.dismiss()

    def _work(self, slot: Slot) -> None:
        try:
            self._crew.work(slot)
        except BaseException as error:
            # A KeyboardInterrupt that the handler raised, or a hand that cannot be made.
            self._shift.shutdown.at_once(error)
