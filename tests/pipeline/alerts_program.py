"""A driver of alerts that is killed: run by a test. Arguments: store, checkpoint, where to die.

It dies at the named point.
"""

from __future__ import annotations

import os
import signal
import sys

import localqueue.spark
from localqueue import failpoints
from localqueue.spark.pipeline.alerts import StuckAlerts

LIMIT = 0.05


def main(url: str, checkpoint: str, point: str) -> None:
    def die(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = localqueue.spark.session("local[2]", config={"spark.driver.memory": "512m"})
    alerts = StuckAlerts(url, "alerts", checkpoint=checkpoint, waiting={"jobs": LIMIT}, spark=spark)
    with failpoints.listening(die):
        alerts.run(once=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
