"""Replays in processes of their own: one is killed, two run at once, each message is put once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from localqueue import Journal, PersistentQueue
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.replaying.replay import replay
from tests.pipeline.archives import archive, now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# It says "chunk" after every transaction and goes on when it is told so.
PROGRAM = """
import json, sys
from datetime import datetime, UTC
import localqueue.spark
from localqueue.failpoints import listening
from localqueue.spark.pipeline.replaying.replay import replay
from localqueue.spark.write import portions

portions.LARGEST_BATCH = 50
url, lake, until = sys.argv[1:]

def stop(point):
    if point == "replay.after-chunk":
        print("chunk", flush=True)
        sys.stdin.readline()

spark = localqueue.spark.session("local[1]", config={"spark.driver.memory": "1g"})
with listening(stop):
    done = replay(url, lake, since=datetime(2020, 1, 1, tzinfo=UTC),
                  until=datetime.fromisoformat(until), spark=spark)
print(json.dumps([done.counts.put, done.counts.already]), flush=True)
"""


class Process:
    """The program, which is at the end of a transaction whenever it is looked at."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def said(self) -> str:
        return self._stdout.readline().strip()

    def go_on(self) -> None:
        self._stdin.write("\n")
        self._stdin.flush()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    def end(self) -> list[int]:
        """Let it run to its end; what it has put, and found there."""
        self.go_on()
        while (line := self.said()) == "chunk":
            self.go_on()
        self._stdin.close()
        self._stdout.close()
        assert self._process.wait() == 0
        counts: list[int] = json.loads(line)
        return counts


def test_each_message_is_put_once_by_a_killed_replay_and_two_at_once(
    spark: SparkSession, url: str, lake: Lake
) -> None:
    queue = PersistentQueue[Any]("jobs", store=url, journal_policy=Journal(payloads=True))
    queue.put_many(range(400))
    until = now(queue)
    worked_off = Counter[int]()
    queue.ack_many(queue.get_messages(1000))
    archive(lake, queue)

    killed, other = (Process(url, lake.location.uri, until.isoformat()) for _ in range(2))
    # Both are in the middle of it now, each with a transaction done.
    assert (killed.said(), other.said()) == ("chunk", "chunk")
    killed.go_on()
    assert killed.said() == "chunk"
    killed.kill()
    messages = queue.get_messages(1000)
    worked_off.update(message.value for message in messages)
    queue.ack_many(messages)
    put, already = other.end()
    last = replay(url, lake, since=datetime(2020, 1, 1, tzinfo=UTC), until=until, spark=spark)

    messages = queue.get_messages(1000)
    worked_off.update(message.value for message in messages)
    assert worked_off == Counter(range(400))
    assert put + already == 400
    assert already >= 50
    assert (last.counts.put, last.counts.already) == (0, 400)
    queue.close()
