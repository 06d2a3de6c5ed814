"""One job's messages in a Python worker: they run in its main thread, and a watch looks on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from localqueue import errors
from localqueue.errors import InvalidResult, LocalQueueError
from localqueue.message import QueueMessage, with_fields
from localqueue.spark.workers.answers import Answer, News, Ran, Word
from localqueue.spark.workers.batch_parcel import PackedValue
from localqueue.spark.workers.news import Reporter
from localqueue.workers.child import GRACE
from localqueue.workers.context import Slot, nothing_runs
from localqueue.workers.duties import handler_timeout
from localqueue.workers.parcel import pack, pack_error
from localqueue.workers.returned import refuse_undone

LOOK_EVERY = 0.05
TELL_EVERY = 0.25
"""How soon the driver hears of handlers that have ended, before the job has."""
SLOW = 0.5
"""Behind a handler that runs longer than this no other waits: its messages go back."""
INTERRUPT = signal.SIGUSR1


class Round:
    """Calls the handler for each message; what happens meanwhile is told to the driver."""

    def __init__(
        self,
        handler: Callable[[Any], Any],
        job: int,
        messages: list[dict[str, Any]],
        timeout: float | None,
        reporter: Reporter | None,
    ) -> None:
        self._handler = handler
        self._job = job
        self._messages = messages
        self._timeout = timeout
        self._reporter = reporter
        self._slot = Slot(0, self._report)
        self._slot.interrupt = self._interrupt
        self._answers: list[Answer] = []
        self._seconds: list[float] = []
        self._notes: list[tuple[int, str]] = []
        self._turn = threading.Lock()
        """Held while a message begins or ends, or it is decided what becomes of it."""
        self._place = 0
        self._limit = len(messages)
        self._inside = False
        """Whether the main thread is in the handler, and may be interrupted there, once."""
        self._told_at: float | None = None
        """When the handler that runs was told to end."""
        self._sent = 0
        self._spoke_at = time.monotonic()

    def run(self) -> Ran:
        ended = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(ended,), name="localqueue-watch", daemon=True
        )
        watch.start()
        _listen_for(self)
        try:
            for place in range(len(self._messages)):
                if not self._begins(place):
                    break
                self._call()
        finally:
            # Not waited for: it may be busy with a line that nobody answers.
            ended.set()
            nothing_runs()
        return Ran(self._answers, self._seconds)

    def _begins(self, place: int) -> bool:
        with self._turn:
            if place >= self._limit:
                return False
            self._place, self._told_at = place, None
            self._slot.begin(with_fields(self._messages[place]))
            return True

    def _call(self) -> None:
        message = self._slot.message
        assert message is not None
        answer: Answer
        try:
            result = self._handle(message)
            answer = None if result is None else _returned(result)
        except BaseException as error:
            answer = ("raised", pack_error(error))
        # Or the watch could decide meanwhile that it has not ended, and answer as well.
        with self._turn:
            self._end(answer)

    def _handle(self, message: QueueMessage[Any]) -> Any:
        """Nothing interrupts the main thread but in here, so that what is raised is an answer."""
        try:
            self._inside = True
            told = self._slot.told(message)
            # What was told before this moment interrupted nothing.
            if told is not None:
                told.check()
            if type(message.value) is PackedValue:
                vars(message)["value"] = message.value.value()
            return self._handler(message.value)
        finally:
            self._inside = False

    def _end(self, answer: Answer) -> None:
        # In this order: whoever sees the answer finds its time.
        self._seconds.append(time.monotonic() - self._slot.began)
        self._answers.append(answer)

    # --- the watch, in a thread of its own ------------------------------------------------------
    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_EVERY):
            self._look()

    def _look(self) -> None:
        with self._turn:
            message, place = self._slot.message, self._place
            if message is None or self._has_ended(place):
                return
            now = time.monotonic()
            ran, limit = now - self._slot.began, self._limit
            if ran >= SLOW:
                self._limit = min(limit, place + 1)
            if self._timeout is not None and ran >= self._timeout:
                self._tell(message, handler_timeout(self._timeout))
        if self._limit != limit or self._notes or now - self._spoke_at >= TELL_EVERY:
            self._speak()
        self._listen()
        self._end_if_deaf(message, place)

    def _has_ended(self, place: int) -> bool:
        return len(self._answers) > place

    def _speak(self) -> None:
        self._spoke_at = time.monotonic()
        if self._reporter is not None:
            self._reporter.send(self._news())

    def _listen(self) -> None:
        if self._reporter is not None:
            for word in self._reporter.words():
                self._hear_word(word)

    def _news(self) -> News:
        first, self._sent = self._sent, len(self._answers)
        notes, self._notes = self._notes, []
        return News(
            self._job,
            first,
            self._answers[first : self._sent],
            self._seconds[first : self._sent],
            self._place,
            self._limit,
            notes,
        )

    def _hear_word(self, word: Word) -> None:
        if word.job != self._job:
            return
        with self._turn:
            if word.place < 0:
                self._limit = min(self._limit, self._place + 1)
            elif word.place == self._place and not self._has_ended(word.place):
                assert self._slot.message is not None
                kind: type[LocalQueueError] = getattr(errors, word.reason)
                self._tell(self._slot.message, kind(word.text))

    def _tell(self, message: QueueMessage[Any], error: LocalQueueError) -> None:
        if self._told_at is None:
            self._told_at = time.monotonic()
            self._slot.tell(message, error)

    def _end_if_deaf(self, message: QueueMessage[Any], place: int) -> None:
        """A handler that does not end when it is told to is ended with its process."""
        told_at = self._told_at
        if told_at is None or time.monotonic() - told_at < GRACE:
            return
        with self._turn:
            told = self._slot.told(message)
            if self._place != place or self._has_ended(place) or told is None:
                return
            assert told.reason is not None
            # Nothing behind it begins, and what it is told is known where there is a line.
            self._limit = place + 1
            self._end(("raised", pack_error(told.reason)))
            self._speak()
            os._exit(1)

    # --- what a handler is told -----------------------------------------------------------------
    def _interrupt(self, _error: LocalQueueError) -> None:
        if _hears:
            signal.pthread_kill(threading.main_thread().ident or 0, INTERRUPT)

    def hear(self) -> None:
        """In the main thread: raise there what the handler was told, so that it can clean up."""
        message = self._slot.message
        told = None if message is None else self._slot.told(message)
        if self._inside and told is not None:
            # At once: a second signal must not find it on its way out.
            self._inside = False
            told.check()

    def _report(self, message: QueueMessage[Any], note: str) -> None:
        self._notes.append((self._place, note))


def _returned(result: Any) -> Answer:
    refuse_undone(result)
    try:
        return "returned", pack(result)
    except Exception as error:
        raise InvalidResult(
            f"the handler returned a {type(result).__name__}, which cannot be sent to the worker:"
            f" {error}; return plain values"
        ) from error


_current: Round | None = None
_hears = False


def _listen_for(round_: Round) -> None:
    """Let the signal interrupt the handlers of this round; in other threads nothing can."""
    global _current, _hears
    _current = round_
    if not _hears and threading.current_thread() is threading.main_thread():
        # For good: one that comes late would end the process.
        signal.signal(INTERRUPT, _hear)
        _hears = True


def _hear(_number: int, _frame: FrameType | None) -> None:
    if _current is not None:
        _current.hear()
