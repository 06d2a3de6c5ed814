"""A driver of a pipeline, to be killed.

    python pipeline_program.py URL LAKE NAME MASTER ROWS [POINT]

It says ``jvm PID`` and each moment that the pipeline reaches (``at pipeline.after-events``), and at
the end ``done EVENTS``. At POINT, the first time that it is reached, it kills itself.
"""

from __future__ import annotations

import os
import signal
import sys

import localqueue.spark
from localqueue.failpoints import listening
from localqueue.spark.pipeline.pipeline import Pipeline


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(url: str, lake: str, name: str, master: str, rows: str, point: str = "") -> None:
    spark = localqueue.spark.session(
        master,
        config={
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            # An executor that was killed is noticed when its connection ends; tasks try again.
            "spark.task.maxFailures": "8",
        },
    )
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    say(f"jvm {gateway.proc.pid}")

    def reached(moment: str) -> None:
        say(f"at {moment}")
        if moment == point:
            os.kill(gateway.proc.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    with listening(reached):
        run = Pipeline(url, lake, name=name, spark=spark, rows_per_batch=int(rows)).run()
    say(f"done {run.events}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
