"""A worker: failed messages are tried again, hopeless ones are kept, Ctrl-C loses nothing.

python examples/worker.py
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

from localqueue import PersistentQueue, Reject
from localqueue.workers import Backoff, Worker, current_message


def fetch(url: str) -> None:
    """Returns: done. Raises: again later, and after ``max_tries`` a dead letter."""
    if not url.startswith("https://"):
        raise Reject("not an address")  # another try cannot help
    if "down" in url or ("slow" in url and current_message().attempt == 1):
        raise TimeoutError("no answer")
    print(f"fetched {url} at attempt {current_message().attempt}")


def fetch_until_stopped(url: str) -> None:
    fetch(url)
    if url.endswith("first"):
        os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does; this handler may end


def main(folder: Path) -> None:
    with PersistentQueue[str]("pages", store_path=folder / "pages.sqlite3") as queue:
        queue.put_many(
            ["https://a.example", "https://slow.example", "https://down.example", "junk"]
        )
        summary = Worker(queue, fetch, max_tries=3, backoff=Backoff(first=0.05)).run(
            until_empty=True
        )
        print(f"{summary.done} done, {summary.failed} tried again, {summary.dead} given up")
        for letter in queue.dead_letters():
            error = letter.last_error or {}
            print(f"dead letter {letter.value}: {error['type']} after {letter.attempts} attempts")

        queue.requeue_dead(queue.dead_letters()[-1])  # somebody had a look: once more
        print("requeued, and waiting:", queue.qsize())
        queue.purge()

        queue.put_many(["https://b.example/first", "https://b.example/second"])
        summary = Worker(queue, fetch_until_stopped).run()  # until Ctrl-C
        print(f"stopped after {summary.done}, still waiting: {queue.qsize()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
