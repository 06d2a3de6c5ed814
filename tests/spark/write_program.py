"""A driver that is killed while it writes: run by a test, one kill after the other.

Each kill is a process of its own, forked from one that has loaded everything. It prints a line of
JSON per moment: what was put then, and whether all is put once after the batch was written again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.types import StringType, StructField, StructType

from localqueue import failpoints
from tests.spark.writing import batch_writer, numbers, put_numbers, run_tasks, staged

SCHEMA = StructType([StructField("value", StringType())])
ROWS = 21_000
MOMENTS = (
    ("sink.staged", 2),
    ("sink.before-manifest", 1),
    ("sink.after-manifest", 1),
    ("sink.after-chunk", 1),
    ("sink.after-chunk", 2),
    ("sink.after-chunk", 3),
    ("sink.before-removal", 1),
)


def write(url: str) -> None:
    writer = batch_writer(url, SCHEMA, queue="jobs", sinkId="orders", batchId="7")
    # The first and the last task's rows ride in their messages, the others wait in files.
    tasks = (numbers(0, 10), numbers(10, 12_000), numbers(12_000, ROWS - 10))
    messages = run_tasks(writer, SCHEMA, *tasks, numbers(ROWS - 10, ROWS))
    writer.commit([*messages])


def die_at(point: str, times: int) -> Callable[[str], None]:
    left = times

    def listen(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return listen


def in_a_process(work: Callable[[], None]) -> int:
    """Its exit status, as ``os.waitpid`` has it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def main(folder: Path) -> None:
    for number, (point, times) in enumerate(MOMENTS):
        path = folder / f"{number}.sqlite3"
        url = f"sqlite:///{path}"

        def die(point: str = point, times: int = times, url: str = url) -> None:
            with failpoints.listening(die_at(point, times)):
                write(url)

        died = os.WIFSIGNALED(in_a_process(die))
        left = len(put_numbers(url)) if path.exists() else 0
        ended = in_a_process(lambda url=url: write(url))  # type: ignore[misc]
        told = {
            "point": f"{point} {times}",
            "died": died,
            "put_before": left,
            "ended": ended,
            "exactly_once": put_numbers(url) == list(range(ROWS)),
            "files": len(staged(path)),
        }
        sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
