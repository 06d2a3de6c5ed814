"""How long messages may wait and run before somebody is told, by queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from localqueue.checks import check_queue_name
from localqueue.errors import ConfigurationError

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
        limits = cls(_seconds(WAITING, waiting or {}), _seconds(RUNNING, running or {}))
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


def _seconds(stage: str, limits: Mapping[str, float]) -> dict[str, float]:
    for queue, seconds in limits.items():
        check_queue_name(queue)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigurationError(
                f"{stage}: the limit of {queue!r} is {seconds!r}; it is a number of seconds, such"
                " as 30.0"
            )
    return {queue: float(seconds) for queue, seconds in limits.items()}
