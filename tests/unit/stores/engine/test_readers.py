"""Those who read: whoever closes or forks minds them, and does not wait for them for long."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from localqueue.stores.protocol import Put
from localqueue.stores.sqlite import connection
from tests.unit.stores.engine.phrases import QUEUE, SOON, make_store, put


def test_closing_beside_one_who_reads_takes_no_descriptor_from_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path, timeout=0.05)
    put(store)
    reads, go_on = threading.Event(), threading.Event()
    connect = connection.connect_to_read
    kinds: list[str] = []

    def slowly(*where: Any, **how: Any) -> sqlite3.Connection:
        db = connect(*where, **how)
        reads.set()
        assert go_on.wait(SOON)
        return db

    monkeypatch.setattr(connection, "connect_to_read", slowly)
    reader = threading.Thread(target=lambda: kinds.extend(e.kind for e in store.journal()))
    reader.start()
    assert reads.wait(SOON)
    store.close()
    # They get the numbers of the descriptors that were closed.
    strangers = [tmp_path / f"stranger-{number}" for number in range(16)]
    files = [path.open("w+b", buffering=0) for path in strangers]
    for file in files:
        file.write(b"precious")
    go_on.set()
    reader.join(SOON)
    for file in files:
        file.close()

    assert {path.read_bytes() for path in strangers} == {b"precious"}
    assert "enqueued" in kinds


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_does_not_wait_for_threads_that_never_stop_reading(tmp_path: Path) -> None:
    with make_store(tmp_path, timeout=8.0, durability="relaxed") as store:
        store.enqueue_many([Put(QUEUE, b"1")] * 1000, now=1.0)
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                store.peek(QUEUE, 1000, now=1.0)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os._exit(0)
        took = time.monotonic() - began
        os.waitpid(child, 0)
        stop.set()
        for thread in threads:
            thread.join(SOON)

        assert took < 4.0
        put(store)
