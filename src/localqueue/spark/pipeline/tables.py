"""The tables of a pipeline, in the order in which a batch comes to them.

``quarantine`` and ``events`` are written first, from the journal. Every other table follows
``events``: after a crash, with a lost checkpoint, or made by a later release, it takes from there
what it does not have yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from localqueue.spark.pipeline.attempts import ATTEMPTS, ended_leases
from localqueue.spark.pipeline.checks import check_limits
from localqueue.spark.pipeline.errors import ERRORS_STEP
from localqueue.spark.pipeline.messages import MESSAGES, ended_lives
from localqueue.spark.pipeline.minutes import minutes_step
from localqueue.spark.pipeline.steps import MergeStep, RowStep

SILVER: tuple[RowStep, ...] = (
    RowStep(ATTEMPTS, ended_leases),
    RowStep(MESSAGES, ended_lives),
)
"""Written in the same pass as ``events``."""


def gold(
    limits: Mapping[str, float] | None = None, trimmed: Collection[tuple[str, str]] = ()
) -> tuple[MergeStep, ...]:
    """Merged by the driver, out of what the tasks that write ``events`` have summed up.

    ``limits`` are how long messages may wait, in seconds by queue, see ``slo``. ``trimmed`` are the
    stores and queues whose journal has lost its beginning, see ``backlog``.
    """
    return minutes_step(check_limits("slo", limits or {}), frozenset(trimmed)), ERRORS_STEP


GOLD = gold()
