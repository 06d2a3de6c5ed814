"""Which strategies and callbacks a retry takes: what Tenacity can call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localqueue.checks import check_seconds
from localqueue.errors import WrongType

_STRATEGIES = {
    "wait": "; take one like wait_exponential() of Tenacity, or a number of seconds",
    "stop": "; take one like stop_after_delay(60) of Tenacity, or max_tries= for a number of tries",
    "retry": "; take one like retry_if_exception_type(OSError) of Tenacity",
    "sleep": "",
    "before": "",
    "after": "",
    "before_sleep": "",
    "retry_error_callback": "",
}
"""A class is called, too, but what it makes decides nothing: those with a hint are refused."""


def check_strategies(options: Mapping[str, Any]) -> None:
    """Refuse retry options that Tenacity could not call: it would only find out at a failure.

    None is an option that is left out, and ``wait`` may be a number of seconds.
    """
    for name, hint in _STRATEGIES.items():
        value = options.get(name)
        if name == "wait" and isinstance(value, (int, float)) and not isinstance(value, bool):
            check_seconds("wait", value)
        elif value is not None and (not callable(value) or (hint and isinstance(value, type))):
            shown = repr(value) if isinstance(value, (type, int, float)) else type(value).__name__
            raise WrongType(f"{name} must be callable, not {shown}{hint}")
