"""What a new session is started with."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from localqueue.spark.cores import cores

_TRIES = 4
_CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# Spark asks for a null before it takes a cell, and counts its rows: both are checked once more for
# every cell that comes from Python, which takes a fifth of Spark's time in a read.
_TRUSTING = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_LOCAL = re.compile(r"local(?:\[(\d+|\*)\])?")


def set_up(wanted: Mapping[str, str]) -> dict[str, str]:
    """The settings that are wanted, and ours where nothing is said."""
    all_cores = str(cores())
    settings = {
        "spark.master": f"local[{all_cores}]",
        "spark.app.name": "localqueue",
        "spark.sql.shuffle.partitions": all_cores,
        # The jobs of workers, and of queries, do not wait for all tasks of a large one before them.
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **wanted,
    }
    if local := _LOCAL.fullmatch(settings["spark.master"]):
        # Plain local[N] gives a task one try, and a killed Python worker would fail the whole job.
        settings["spark.master"] = f"local[{local[1] or 1},{_TRIES}]"
    if settings["spark.master"].startswith("local"):
        # Nobody else needs to reach it, and the host's own name may not resolve.
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
        # The default one starts a process for each file on a local disk, twice in every batch of a
        # query: 300 ms instead of 70. Both write beside the file and rename.
        settings.setdefault("spark.sql.streaming.checkpointFileManagerClass", _CHECKPOINT_FILES)
    ours = {"driver": _TRUSTING, "executor": _TRUSTING}
    if "spark.log.level" not in wanted and not os.environ.get("SPARK_CONF_DIR"):
        # spark.log.level acts when Spark has started, and is announced; this, from the start.
        ours["driver"] += _quiet()
    for side, options in ours.items():
        name = f"spark.{side}.extraJavaOptions"
        settings[name] = f"{options} {wanted.get(name, '')}".strip()
    return settings


def _quiet() -> str:
    log4j = files("localqueue.spark.sessions").joinpath("log4j2.properties")
    return f" -Dlog4j2.configurationFile={log4j.as_uri()}" if isinstance(log4j, Path) else ""
