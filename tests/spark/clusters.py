"""Real clusters out of PySpark's wheel, on loopback: separate JVMs, ended by their ids.

A driver of such a cluster is a program in a process of its own (``run_program``), since a process
has one JVM and the tests' own session has it. ``LOCAL_CLUSTER`` needs no servers: the driver starts
its executors, also as separate JVMs.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

import pyspark

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
"""A master for ``session``: two executors of one core and 1 GB."""

SPARK_HOME = Path(pyspark.__path__[0])
PATIENCE = 120.0
"""How long a server may take to start, in seconds."""


class Server:
    """A process of Spark's that stays: what it logs is kept, and waited for."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        self.log: list[str] = []
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "SPARK_HOME": str(SPARK_HOME), **(env or {})},
            start_new_session=True,
        )
        self._drain = threading.Thread(target=self._read, daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, pattern: str, timeout: float = PATIENCE) -> str:
        """The first group of the next line that matches."""
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except Empty:
                line = None
            if line is None:
                raise AssertionError(f"no line like {pattern!r} in:\n{''.join(self.log)}")
            if match := re.search(pattern, line):
                return match[1]

    def stop(self) -> None:
        """End it and what it started."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._drain.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@contextlib.contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The URL of a standalone master with this many workers, of one core and 1 GB each."""
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    loopback = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with contextlib.ExitStack() as servers:
        command = [spark_class, "org.apache.spark.deploy.master.Master", *loopback]
        master = servers.enter_context(Server(command, env=env))
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        command = [spark_class, "org.apache.spark.deploy.worker.Worker", *loopback]
        command += ["--cores", "1", "--memory", "1g"]
        started = []
        for number in range(workers):
            own = ["--work-dir", str(folder / f"worker-{number}"), url]
            started.append(servers.enter_context(Server([*command, *own], env=env)))
        for worker in started:
            worker.wait_for(r"Successfully registered with master (\S+)")
        yield url


@contextlib.contextmanager
def connect_server(
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The URL of a Spark Connect server on a local master."""
    settings = {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        **(config or {}),
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit")]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command.append("spark-internal")
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **(env or {})}
    with Server(command, env=env) as server:
        port = server.wait_for(r"Spark Connect server started at: \S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}"


def python_without_localqueue(folder: Path) -> Path:
    """A Python with all libraries of this one but ``localqueue``, as an executor may have it."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    ours = Path(pyspark.__path__[0]).parent
    theirs = next(folder.glob("lib/python*/site-packages"))
    for entry in ours.iterdir():
        if "localqueue" not in entry.name and entry.suffix != ".pth":
            (theirs / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def run_program(
    code: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 180.0,
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process; AssertionError with what it wrote when it fails."""
    answer = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    assert answer.returncode == 0, f"{answer.stdout}\n{answer.stderr}"
    return answer
