"""The Python processes in which Spark runs our code: it keeps them, and uses them again."""

from __future__ import annotations

import gc
import sys

_kept = False


def keep_what_is_loaded() -> None:
    """From now on, collecting garbage does not go through what is in memory now.

    Spark collects after every task: 45 ms of it for the modules that are loaded and never go.
    """
    gc.collect()
    gc.freeze()


def settle_in() -> None:
    """The same, the first time that it is said in a process of Spark's; nothing in any other."""
    global _kept  # of this process
    if not _kept and _is_sparks():
        _kept = True
        keep_what_is_loaded()


def _is_sparks() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
