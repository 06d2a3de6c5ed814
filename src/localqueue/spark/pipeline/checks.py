"""What is asked of names and limits wherever a part of the pipeline takes them."""

from __future__ import annotations

from collections.abc import Mapping

from localqueue.checks import check_queue_name
from localqueue.errors import ConfigurationError


def check_name(of: str, name: str) -> str:
    """A name that may stand in paths, groups and keys; ConfigurationError for any other."""
    if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise ConfigurationError(
            f"{name!r} cannot name {of}; use letters, digits, '-', '_' and '.'"
        )
    return name


def check_limits(option: str, limits: Mapping[str, float]) -> dict[str, float]:
    """Seconds by queue; ConfigurationError for one that is no length of time."""
    for queue, seconds in limits.items():
        check_queue_name(queue)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigurationError(
                f"{option}: the limit of {queue!r} is {seconds!r}; it is a number of seconds, such"
                " as 30.0"
            )
    return {queue: float(seconds) for queue, seconds in limits.items()}
