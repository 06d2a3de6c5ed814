"""Jobs side by side: each lane runs one batch of messages after the other, as a job of one task."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from localqueue.errors import (
    ConfigurationError,
    HandlerDied,
    InvalidMessageType,
    InvalidResult,
    LocalQueueError,
    WorkerStopped,
)
from localqueue.message import QueueMessage
from localqueue.spark.workers.answers import (
    Answer,
    DiedBefore,
    News,
    Ran,
    Unloadable,
    Unreadable,
    Word,
)
from localqueue.spark.workers.batch_parcel import pack_apart, pack_together
from localqueue.spark.workers.batch_size import LONG, BatchSize
from localqueue.spark.workers.handler_task import HandlerTask
from localqueue.spark.workers.jobs import Jobs
from localqueue.spark.workers.news import NewsDesk
from localqueue.spark.workers.submitter import End, Failed, Gone, Over, Submitter
from localqueue.spark.workers.suspects import Suspects
from localqueue.workers.context import Slot, nothing_runs
from localqueue.workers.execution import INTERRUPTS, Execution
from localqueue.workers.liveness import Liveness
from localqueue.workers.parcel import pack, unpack, unpack_error
from localqueue.workers.shift import Shift
from localqueue.workers.thread import Lobby

log = logging.getLogger("localqueue.spark")

LOOK_EVERY = 0.1
"""How often a lane that waits for its job looks whether the worker stops."""
LAST_PATIENCE = 5.0
"""Seconds for jobs that were cancelled to end."""
_LONGEST = 300


class Lanes(Lobby):
    """The runners of a worker on Spark: one slot is one lane, and runs a batch at a time.

    Which message of a batch runs is known where tasks can report it, and guessed elsewhere. The
    sign of life of the worker says nothing of them: no handler can kill the driver, so what it
    leaves when it dies is charged to nobody.
    """

    def __init__(
        self,
        shift: Shift,
        execution: Execution,
        liveness: Liveness,
        jobs: Jobs,
        task: HandlerTask,
        desk: NewsDesk | None,
        size: BatchSize | None,
        waiting: Callable[[], int],
        description: str,
    ) -> None:
        """Without a ``size`` each message has a job of its own.

        ``waiting`` is how many messages wait in the queues.
        """
        super().__init__(shift, liveness)
        # Lanes take a while: less would send messages to and fro.
        shift.patience = LONG
        self.execution = execution
        self.desk = desk
        self._size = size
        self._waiting = waiting
        self.suspects = Suspects()
        self.numbers = count(1)
        self._running: set[Lane] = set()
        self._jobs = jobs
        self._submitters = [Submitter(jobs, task, description) for _ in shift.slots]

    @property
    def shift(self) -> Shift:
        return self._shift

    @property
    def is_dismissed(self) -> bool:
        return self._dismissed

    def work(self, slot: Slot) -> None:
        submitter = self._submitters[slot.number]
        try:
            while True:
                batch = self._take(slot)
                if batch:
                    lane = Lane(self, slot, submitter, batch)
                    self._running.add(lane)
                    lane.run()
                    self._running.discard(lane)
                elif not self._waits_for_more(slot):
                    return
        finally:
            slot.rest()
            nothing_runs()
            submitter.close()

    def stop_waiting(self) -> None:
        """Nobody waits for handlers that still run: they are ended.

        A job that has told everything and only has to end may do so: its process is used again.
        """
        self.dismiss()
        if any(not lane.has_told_everything() for lane in list(self._running)):
            self._jobs.cancel()
        deadline = time.monotonic() + LAST_PATIENCE
        for submitter in self._submitters:
            submitter.close()
            submitter.join(max(0.0, deadline - time.monotonic()))
        self._jobs.cancel()

    def measure(self, count: int, seconds: float) -> None:
        if self._size is not None and count:
            self._size.measure(count, seconds)
            share = self._size.share(self._waiting(), len(self._shift.slots))
            self._shift.share = self.suspects.share(share)

    def suspect(self, messages: list[QueueMessage[Any]]) -> None:
        """They were together in a job that died."""
        self.suspects.add(messages, of=len(messages))
        self._shift.share = self.suspects.share(self._shift.share)

    def _take(self, slot: Slot) -> list[QueueMessage[Any]]:
        """The next batch: what is pending, shared with the lanes that wait as well."""
        shift, pending = self._shift, self._shift.pending
        waiting = 1 + sum([other.idle for other in shift.slots])
        most = min(shift.share, -(-len(pending) // waiting))
        batch: list[QueueMessage[Any]] = []
        while len(batch) < most:
            try:
                message = pending.popleft()
            except IndexError:
                break
            company = self.suspects.company(message, most)
            if len(batch) >= company:
                pending.appendleft(message)
                break
            if self._may_run(slot, message):
                most = company
                batch.append(message)
        return batch

    def _may_run(self, slot: Slot, message: QueueMessage[Any]) -> bool:
        execution = self.execution
        if self._shift.shutdown.deadline is not None and execution.turns_away(message):
            return False
        commit = execution.source(message).commit
        if commit is None:
            return True
        try:
            return execution.begin(message, commit)
        except BaseException as error:
            execution.failure(slot, message, error)
            if isinstance(error, INTERRUPTS):
                raise
            return False


class Lane:
    """One batch, from its job's start to the last answer. In the thread of its runner."""

    def __init__(
        self, lanes: Lanes, slot: Slot, submitter: Submitter, batch: list[QueueMessage[Any]]
    ) -> None:
        self._lanes = lanes
        self._slot = slot
        self._submitter = submitter
        self._batch = batch
        self._job = next(lanes.numbers)
        self._execution = lanes.execution
        self._shutdown = lanes.shift.shutdown
        self._simple = lanes.execution.is_simple()
        self._inbox: SimpleQueue[News | End] = SimpleQueue()
        self._answered: set[int] = set()
        """The places of the messages whose delivery has ended here."""
        self._running = 0
        self._begun = -1
        """The last place whose handler is known to have begun."""
        self._is_apart = False
        """Whether the messages were sent so that one which cannot be read fails alone."""
        self._has_said_stop = False

    def run(self) -> None:
        slot, desk = self._slot, self._lanes.desk
        parcel = self._parcel()
        if parcel is None:
            return
        slot.begin(self._batch[0])
        slot.count += len(self._batch) - 1
        slot.interrupt = self._interrupt
        if desk is not None:
            desk.follow(self._job, self._inbox.put)
        try:
            self._submitter.submit(parcel, self._inbox.put)
            self._wait()
        finally:
            slot.interrupt = None
            if desk is not None:
                desk.forget(self._job)

    def has_told_everything(self) -> bool:
        return len(self._answered) >= len(self._batch)

    def _parcel(self) -> bytes | None:
        try:
            return pack_together(self._job, self._batch)
        except Exception:
            self._fail_unsendable()
        return pack_together(self._job, self._batch) if self._batch else None

    def _fail_unsendable(self) -> None:
        sendable = []
        for message in self._batch:
            try:
                pack(vars(message))
                sendable.append(message)
            except Exception as error:
                self._execution.failure(
                    self._slot,
                    message,
                    InvalidMessageType(f"the value cannot be sent to an executor: {error}"),
                )
        self._batch = sendable

    def _wait(self) -> None:
        """Until the job is over, or nobody waits for it any longer."""
        while not self._lanes.is_dismissed:
            with contextlib.suppress(Empty):
                match self._inbox.get(timeout=LOOK_EVERY):
                    case News() as news:
                        self._hear(news)
                        continue
                    case Over(packed):
                        answer = unpack(packed)
                        if isinstance(answer, Unreadable) and not self._is_apart:
                            self._is_apart = True
                            parcel = pack_apart(self._job, self._batch)
                            self._submitter.submit(parcel, self._inbox.put)
                            continue
                        self._finish(answer)
                        return
                    case Failed(error, cancelled):
                        self._take_back(error, charged=not cancelled)
                        return
                    case Gone(error):
                        self._stop(WorkerStopped(f"Spark runs no jobs any more: {error}"), error)
                        return
            if self._shutdown.asked and not self._has_said_stop:
                self._has_said_stop = True
                self._say(-1, WorkerStopped("the worker stops"))

    # --- what became of them --------------------------------------------------------------------
    def _hear(self, news: News) -> None:
        slot = self._slot
        self._begun = max(self._begun, news.running)
        self._settle(news.first, news.answers, news.seconds)
        for place in range(news.limit, len(self._batch)):
            self._give_back(place)
        if news.running != self._running:
            self._running = news.running
            slot.begin(self._batch[news.running])
            slot.count -= 1
        for place, note in news.notes:
            if place == self._running and place not in self._answered:
                slot.report(slot.current_of(self._batch[place]), note)

    def _finish(self, answer: Ran | DiedBefore | Unloadable | Unreadable) -> None:
        match answer:
            case Ran(answers, seconds):
                self._settle(0, answers, seconds)
                for place in range(len(answers), len(self._batch)):
                    self._give_back(place)
                self._lanes.suspects.clear(self._batch[: len(answers)])
                self._lanes.measure(len(answers), sum(seconds))
            case DiedBefore():
                self._take_back(HandlerDied("Spark had to begin it again"), charged=True)
            case Unloadable(error):
                self._stop(unloadable(unpack_error(error)))
            case Unreadable(error):
                cause = unpack_error(error)
                for place in self._left():
                    self._answered.add(place)
                    self._fail(place, InvalidMessageType(f"an executor cannot read it: {cause}"))

    def _settle(self, first: int, answers: list[Answer], seconds: list[float]) -> None:
        if self._simple and self._is_plain_success(answers):
            self._lanes.shift.acks.extend(self._batch)
            self._answered.update(range(len(answers)))
            return
        for place, answer in enumerate(answers, first):
            if place not in self._answered:
                self._answered.add(place)
                self._end(place, answer, seconds[place - first])

    def _is_plain_success(self, answers: list[Answer]) -> bool:
        """Whether all returned nothing, and nobody has spoken of them before."""
        return (
            len(answers) == len(self._batch)
            and not self._answered
            and self._slot.current is None
            and not any(answers)
        )

    def _end(self, place: int, answer: Answer, seconds: float) -> None:
        message = self._batch[place]
        error, result = None, None
        if answer is not None:
            kind, packed = answer
            try:
                if kind == "raised":
                    error = unpack_error(packed)
                else:
                    result = unpack(packed)
            except Exception as broken:
                error = InvalidResult(
                    f"what the handler returned cannot be read by the worker: {broken};"
                    " return plain values"
                )
        self._execution.tell_handled(message, seconds, error)
        if error is not None:
            self._fail(place, error)
        elif self._simple and self._slot.told(message) is None:
            self._lanes.shift.acks.append(message)
        else:
            self._execution.success(self._slot, message, result)

    def _fail(self, place: int, error: BaseException) -> None:
        self._execution.failure(self._slot, self._batch[place], error)
        if isinstance(error, INTERRUPTS):
            self._shutdown.at_once(error)

    def _give_back(self, place: int) -> None:
        """No handler has begun."""
        if place not in self._answered:
            self._answered.add(place)
            self._execution.give_back(self._batch[place])

    def _take_back(self, error: BaseException, *, charged: bool) -> None:
        """The job died. Alone in it, a message is to blame; of several nobody knows which."""
        places = self._left()
        left = [self._batch[place] for place in places]
        if charged and len(left) == 1 and self._is_to_blame(*places):
            self._lanes.suspects.clear(left)
            died = HandlerDied(f"the task of the handler died on an executor: {_short(error)}")
            self._execution.failure(self._slot, left[0], died)
            return
        if charged and left:
            self._lanes.suspect(left)
            log.warning(
                "a job died (%s) with %d messages of which none is known to be the cause; they run"
                " again in smaller ones",
                _short(error),
                len(left),
            )
        for message in left:
            self._execution.take_back(message)

    def _is_to_blame(self, place: int) -> bool:
        """Whether its handler had begun. Where no task can say so, it counts as begun.

        Otherwise a message that kills its process would do that for ever.
        """
        desk = self._lanes.desk
        if place <= self._begun or desk is None or not desk.is_reached:
            return True
        return not self._lanes.suspects.is_doubtful(self._batch[place])

    def _left(self) -> list[int]:
        return [place for place in range(len(self._batch)) if place not in self._answered]

    def _stop(self, error: LocalQueueError, cause: BaseException | None = None) -> None:
        """The worker cannot go on, and no message is to blame."""
        error.__cause__ = cause or error.__cause__
        self._shutdown.at_once(error)

    # --- what handlers are told -----------------------------------------------------------------
    def _interrupt(self, error: LocalQueueError) -> None:
        """From any thread."""
        current = self._slot.current
        # By then another message may run, which has nothing to do with it.
        if current is not None and current.reason is error:
            for place, message in enumerate(self._batch):
                if message is current.message:
                    self._say(place, error)

    def _say(self, place: int, error: LocalQueueError) -> None:
        if self._lanes.desk is not None:
            self._lanes.desk.tell(Word(self._job, place, type(error).__name__, str(error)))


def unloadable(cause: BaseException) -> ConfigurationError:
    error = ConfigurationError(
        f"executors cannot load the handler: {type(cause).__name__}: {cause}; put it where they"
        " can import it (spark.submit.pyFiles, addPyFile), or define it in the script itself"
    )
    error.__cause__ = cause
    return error


def _short(error: BaseException) -> str:
    """The one line that matters of what Spark says, which goes on for pages."""
    text = f"{error}".strip()
    cause = re.search(r"most recent failure: (.*)", text)
    line = text.partition("\n")[0] if cause is None else cause[1]
    return line[:_LONGEST] or type(error).__name__
