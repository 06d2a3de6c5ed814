"""How long messages may wait and run before somebody is told, by queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.checks import check_limits

WAITING, RUNNING = "waiting", "running"
"""The stages of a message: due and in nobody's hands, and in a worker's."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds by queue. A queue without a limit for a stage has no alerts about it."""

    waiting: Mapping[str, float] = field(default_factory=dict)
    running: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def checked(
        cls, waiting: Mapping[str, float] | None, running: Mapping[str, float] | None
    ) -> Limits:
        """ConfigurationError when there are none, or for one that is no length of time."""
        limits = cls(check_limits(WAITING, waiting or {}), check_limits(RUNNING, running or {}))
        if not limits.queues:
            raise ConfigurationError(
                "nothing is to be watched; say how many seconds messages of a queue may wait or"
                ' run, such as waiting={"orders": 30.0}'
            )
        return limits

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that have a limit."""
        return tuple(sorted({*self.waiting, *self.running}))

    def of(self, queue: str, stage: str) -> float | None:
        return (self.waiting if stage == WAITING else self.running).get(queue)
