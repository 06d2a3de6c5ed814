"""What is promised about a queue, and how fast a report sees the promise being used up."""

from __future__ import annotations

from dataclasses import dataclass

from localqueue.errors import InvalidArgument
from localqueue.spark.pipeline.slo import OBJECTIVE


@dataclass(frozen=True, slots=True)
class Slo:
    """``target`` of all deliveries wait at most ``wait`` seconds; ``target`` of all lives succeed.

    A burn of 1 uses the error budget up exactly; of 10, ten times too fast.
    """

    wait: float = 60.0
    target: float = OBJECTIVE

    def __post_init__(self) -> None:
        if not self.wait > 0:
            raise InvalidArgument(f"an SLO's wait is a number of seconds above 0, not {self.wait}")
        if not 0 < self.target < 1:
            raise InvalidArgument(
                f"an SLO's target is between 0 and 1, such as 0.99, not {self.target}"
            )
