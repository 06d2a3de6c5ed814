"""A thread that runs one job after the other, so that whoever waits for one can do other things."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from localqueue.spark.workers.batch_parcel import NOTHING
from localqueue.spark.workers.handler_task import HandlerTask
from localqueue.spark.workers.jobs import Jobs, is_cancelled

PATIENCE = 3.0
"""Seconds in which a Spark that runs no jobs any more has said so."""


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
        refusal = self._refusal()
        return Failed(error, cancelled=False) if refusal is None else Gone(refusal)

    def _refusal(self) -> BaseException | None:
        """What a job of nothing raises: it tells whether it was the job or Spark.

        A Spark that has others to run first is not waited for: it refuses nothing.
        """
        raised: SimpleQueue[BaseException | None] = SimpleQueue()
        try:
            probe = self._jobs.in_thread(lambda: raised.put(self._probe()))
        except Exception as error:
            # A session that is stopped makes no threads either.
            return error
        threading.Thread(target=probe, name="localqueue-probe", daemon=True).start()
        try:
            return raised.get(timeout=PATIENCE)
        except Empty:
            return None

    def _probe(self) -> BaseException | None:
        try:
            self._jobs.set_up(f"{self._description}: whether jobs still run")
            self._jobs.run(self._task, NOTHING)
        except BaseException as error:
            return error
        return None
