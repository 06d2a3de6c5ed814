"""The Python processes in which Spark runs our code: it keeps them, and uses them again."""

from __future__ import annotations

import gc
import sys

_settled = False


def keep_what_is_loaded() -> None:
    """From now on, collecting garbage does not go through what is in memory now.

    Spark collects after every task: 45 ms of it for the modules that are loaded and never go.
    """
    gc.collect()
    gc.freeze()


def settle_in() -> None:
    """The same, when it is said in a process of Spark's for the first time; nothing elsewhere."""
    global _settled
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if not _settled and spec is not None and spec.name == "pyspark.daemon":
        _settled = True
        keep_what_is_loaded()
