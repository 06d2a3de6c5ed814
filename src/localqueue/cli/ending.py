"""Ctrl-C while a pipeline runs: it ends after the batch that it is at, and not inside it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from localqueue.cli.output import note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from localqueue.spark.pipeline.pipeline import Pipeline

LOOK_EVERY = 0.1
PATIENCE = 10.0
"""How many seconds Spark may take to write down that a batch is done."""


class Ending:
    """Ends a run when it is asked to. The second time it is asked, it ends at once."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self._pipeline, self._spark = pipeline, spark
        self._written = -1
        self.asked = False

    def batch_written(self, number: int) -> None:
        """Every table has this batch."""
        self._written = number

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM ask for the end. To be set after Spark has set its own."""
        before = {
            number: signal.signal(number, self._interrupted)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        note("ending after this batch; Ctrl-C again ends at once")
        threading.Thread(target=self._end, name="ending", daemon=True).start()

    def _end(self) -> None:
        written = self._written
        while self._is_at_work() and self._written == written:
            time.sleep(LOOK_EVERY)
        # The checkpoint is spared a repetition when Spark notes the batch first.
        enough = time.monotonic() + PATIENCE
        while self._written > self._noted() and time.monotonic() < enough and self._is_at_work():
            time.sleep(LOOK_EVERY)
        self._pipeline.stop()

    def _is_at_work(self) -> bool:
        """Whether a batch runs or is being looked for; not while waiting for the next look."""
        return any(query.status["isTriggerActive"] for query in self._spark.streams.active)

    def _noted(self) -> int:
        for query in self._spark.streams.active:
            progress = query.lastProgress
            if progress is not None:
                return int(progress["batchId"])
        return -1
