"""A thread that runs one job after the other, so that whoever waits for one can do other things."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from localqueue.spark.workers.handler_task import HandlerTask
from localqueue.spark.workers.jobs import Jobs, is_cancelled
from localqueue.workers.parcel import pack

NO_MESSAGES = pack((0, []))


class Over(NamedTuple):
    """The job has an answer."""

    answer: bytes


class Failed(NamedTuple):
    """It has none: its task died, or (``cancelled``) somebody ended it."""

    error: BaseException
    cancelled: bool


class Gone(NamedTuple):
    """No job runs any more: Spark was stopped, or cannot be reached."""

    error: BaseException


End = Over | Failed | Gone


class Submitter:
    """Started when it is made; ``close`` lets it go when its job has ended."""

    def __init__(self, jobs: Jobs, task: HandlerTask, description: str) -> None:
        self._jobs = jobs
        self._task = task
        self._description = description
        self._parcels: SimpleQueue[tuple[bytes, Callable[[End], object]] | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=jobs.in_thread(self._run), name="localqueue-jobs", daemon=True
        )
        self._thread.start()

    def submit(self, parcel: bytes, then: Callable[[End], object]) -> None:
        """``then`` is called in the thread of the jobs."""
        self._parcels.put((parcel, then))

    def close(self) -> None:
        self._parcels.put(None)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        is_set_up = False
        while (given := self._parcels.get()) is not None:
            parcel, then = given
            try:
                if not is_set_up:
                    self._jobs.set_up(self._description)
                    is_set_up = True
                end: End = Over(self._jobs.run(self._task, parcel))
            except BaseException as error:
                end = self._end_of(error)
            then(end)

    def _end_of(self, error: BaseException) -> End:
        if is_cancelled(error):
            return Failed(error, cancelled=True)
        try:
            # A job of nothing tells whether it was the job or Spark.
            self._jobs.run(self._task, NO_MESSAGES)
        except BaseException as again:
            return Gone(again)
        return Failed(error, cancelled=False)
