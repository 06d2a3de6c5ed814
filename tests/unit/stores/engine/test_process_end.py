"""A process that ends without closing, or forgets a store, leaves no more than the file."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from localqueue import PersistentQueue, WrongType
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.engine.phrases import make_store, put

PROGRAM = """
import sys
from localqueue import PersistentQueue
queue = PersistentQueue("jobs", store_path=sys.argv[1])
queue.put(1)
{end}
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise KeyboardInterrupt", "1 / 0"])
def test_a_plain_end_of_the_program_leaves_one_file(tmp_path: Path, end: str) -> None:
    path = tmp_path / "queue.sqlite3"

    subprocess.run([sys.executable, "-c", PROGRAM.format(end=end), path], capture_output=True)

    assert list(tmp_path.iterdir()) == [path]


def test_a_store_that_is_forgotten_leaves_no_descriptors(tmp_path: Path) -> None:
    put(make_store(tmp_path))
    gc.collect()
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(3):
        put(make_store(tmp_path))
        gc.collect()

    assert len(list(Path("/dev/fd").iterdir())) == before
    assert list(tmp_path.iterdir()) == [tmp_path / "queue.sqlite3"]


def test_a_store_can_be_sent_to_another_process_and_a_queue_says_why_not(tmp_path: Path) -> None:
    store = SQLiteQueueStore(tmp_path / "queue.sqlite3", durability="relaxed", timeout=3.0)

    sent = pickle.loads(pickle.dumps(store))

    assert (sent.path, sent.durability, sent.timeout) == (store.path, "relaxed", 3.0)
    with pytest.raises(WrongType, match="open it there"):
        pickle.dumps(PersistentQueue("jobs", store=store))
