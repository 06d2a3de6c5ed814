"""Starting and ending a worker's keeper."""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import pickle
import subprocess
import sys
from pathlib import Path

from localqueue.clock import StoreTime, SystemClock
from localqueue.stores.protocol import QueueStore
from localqueue.workers.liveness import Liveness

log = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("keeper.py")
PATIENCE = 5.0
"""How long a keeper may take to end before it is ended."""


class KeeperProcess:
    """A keeper, started anew when somebody has killed it."""

    def __init__(self, order: bytes) -> None:
        self._order = order
        self._process: subprocess.Popen[bytes] | None = None

    def keep_going(self) -> None:
        """Start it if it does not run."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            log.warning("the keeper has ended with %s: started again", self._process.returncode)
            self.stop()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C is for the worker, which then drains.
                process_group=0,
            )
            assert self._process.stdin is not None
            self._process.stdin.write(self._order)
            self._process.stdin.flush()
        except OSError as error:
            log.warning("no keeper: leases are lost when a handler holds the GIL (%s)", error)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_keeper(
    store: QueueStore, when: StoreTime, liveness: Liveness, lease_timeout: float
) -> KeeperProcess | None:
    """A keeper for the worker with this sign of life; None where there can be none.

    It needs a sign of life that others see, a store that it can open for itself, and the clock of
    the host.
    """
    if liveness.path is None or not sys.executable or type(when.clock) is not SystemClock:
        return None
    try:
        pickled = pickle.dumps(store)
    except (TypeError, pickle.PicklingError, AttributeError):
        return None
    order = marshal.dumps(
        {
            "sign": str(liveness.path),
            "pid": os.getpid(),
            "liveness": liveness.name,
            "lease_timeout": float(lease_timeout),
            "store": pickled,
            "offset": when.offset,
            "path": [str(Path(place).absolute()) for place in sys.path],
        }
    )
    return KeeperProcess(len(order).to_bytes(4, "big") + order)
