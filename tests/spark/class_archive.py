"""An archive of Spark's classes, which Java maps into memory instead of reading and checking them.

The tests start a hundred machines of Java, and each of them would spend half of its start on that.
``python -m tests.spark.class_archive`` makes it once for a Java and a PySpark, from a run of a
pipeline. Without it, and with one that does not fit, Java starts as usual.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from localqueue import PersistentQueue
from localqueue.errors import ConfigurationError
from localqueue.spark.sessions.java import use_java

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What is compiled best comes too late for who lives for seconds."""
PATIENCE = 300.0


def place() -> Path | None:
    """Where the archive of this Java and this PySpark is, or would be; None without them."""
    try:
        java, pyspark = use_java().resolve(), version("pyspark")
    except (ConfigurationError, PackageNotFoundError):
        return None
    of = f"{java} {java.stat().st_mtime_ns} {pyspark} {sys.prefix}"
    return Path(sys.prefix, f"spark-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa")


def use() -> None:
    """Let machines of Java that are started from here start soon: drivers, executors, servers."""
    archive = place()
    if archive is None:
        return
    options = f"{SHORT_LIVED} -XX:SharedArchiveFile={archive}"
    os.environ.setdefault(
        "SPARK_SUBMIT_OPTS", f'{options} -Dspark.executor.defaultJavaOptions="{options}"'
    )
    os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", options)


def make(archive: Path) -> None:
    """From what a small pipeline loads."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder, archive.name)
        url = f"sqlite:///{folder}/queue.sqlite3"
        with PersistentQueue[int]("jobs", store=url) as queue:
            queue.put_many(range(10))
            queue.ack_many(queue.get_messages(5))
        subprocess.run(
            [
                *(sys.executable, "-m", "localqueue.cli", "pipeline", "run"),
                *(url, f"{folder}/lake"),
            ],
            env=os.environ
            | {"SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={made}"},
            # Read to their end, which comes when Java too is done: it writes the archive last.
            capture_output=True,
            check=True,
            timeout=PATIENCE,
        )
        made.rename(archive)


if __name__ == "__main__":
    wanted = place()
    if wanted is not None and not wanted.exists():
        make(wanted)
