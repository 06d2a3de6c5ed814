"""Which retry options a queue, a spec or a worker configuration may carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localqueue.errors import ConfigurationError, InvalidArgument, WrongType


def check_retry_defaults(options: Any, *, what: str = "retry_defaults") -> dict[str, Any]:
    """A fresh dict of the options, or the reason why no retry could be built from them."""
    if not isinstance(options, Mapping):
        raise WrongType(f"{what} must be a mapping, not {type(options).__name__}")
    if not all(isinstance(option, str) for option in options):
        raise WrongType(f"{what} must have strings as keys")
    tries = options.get("max_tries")
    if tries is not None and options.get("stop") is not None:
        raise ConfigurationError(
            f"{what} cannot have both max_tries and stop; max_tries is short for a stop"
        )
    if tries is not None and (type(tries) is not int or tries < 1):
        raise InvalidArgument(f"max_tries must be a positive integer, not {tries!r}")
    return dict(options)
