"""How workers treat failures and how fast they go, as one object that several workers share."""

from __future__ import annotations

from typing import Any

from localqueue.checks import check_count, check_seconds
from localqueue.errors import ConfigurationError, WrongType
from localqueue.policies.retry_defaults import check_retry_defaults


class PersistentWorkerConfig:
    """Options for ``persistent_worker`` and ``persistent_async_worker``.

    ``dead_letter_on_failure`` and ``dead_letter_on_exhaustion`` are two names of one option and
    always equal. What is not an option of the worker is a retry option, kept in ``retry_kwargs``.
    """

    def __init__(
        self,
        *,
        dead_letter_on_failure: bool | None = None,
        dead_letter_on_exhaustion: bool | None = None,
        release_delay: float = 0.0,
        min_interval: float = 0.0,
        circuit_breaker_failures: int = 0,
        circuit_breaker_cooldown: float = 0.0,
        **retry_kwargs: Any,
    ) -> None:
        self.dead_letter_on_failure = _one_of(dead_letter_on_failure, dead_letter_on_exhaustion)
        self.release_delay = check_seconds("release_delay", release_delay)
        self.min_interval = check_seconds("min_interval", min_interval)
        self.circuit_breaker_failures = check_count(
            "circuit_breaker_failures", circuit_breaker_failures
        )
        self.circuit_breaker_cooldown = check_seconds(
            "circuit_breaker_cooldown", circuit_breaker_cooldown
        )
        if (self.circuit_breaker_failures > 0) != (self.circuit_breaker_cooldown > 0):
            raise ConfigurationError(
                "a circuit breaker needs both circuit_breaker_failures and"
                " circuit_breaker_cooldown above zero; without one, both are zero"
            )
        self.retry_kwargs = check_retry_defaults(retry_kwargs, what="the retry options")

    @property
    def dead_letter_on_exhaustion(self) -> bool:
        return self.dead_letter_on_failure

    def with_overrides(self, **overrides: Any) -> PersistentWorkerConfig:
        """A copy with these options instead. max_tries replaces a stop, and the other way round."""
        options = self.options()
        if not {"dead_letter_on_failure", "dead_letter_on_exhaustion"}.isdisjoint(overrides):
            del options["dead_letter_on_failure"]
        for given, other in (("max_tries", "stop"), ("stop", "max_tries")):
            if overrides.get(given) is not None:
                options.pop(other, None)
        return PersistentWorkerConfig(**(options | overrides))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options().items())
        return f"PersistentWorkerConfig({options})"

    def options(self) -> dict[str, Any]:
        """All of them, as the constructor takes them."""
        return {
            "dead_letter_on_failure": self.dead_letter_on_failure,
            "release_delay": self.release_delay,
            "min_interval": self.min_interval,
            "circuit_breaker_failures": self.circuit_breaker_failures,
            "circuit_breaker_cooldown": self.circuit_breaker_cooldown,
            **self.retry_kwargs,
        }


def _one_of(on_failure: bool | None, on_exhaustion: bool | None) -> bool:
    for name, value in (
        ("dead_letter_on_failure", on_failure),
        ("dead_letter_on_exhaustion", on_exhaustion),
    ):
        if value is not None and not isinstance(value, bool):
            raise WrongType(f"{name} must be True or False, not {type(value).__name__}")
    if on_failure is not None and on_exhaustion is not None and on_failure != on_exhaustion:
        raise ConfigurationError(
            "dead_letter_on_failure and dead_letter_on_exhaustion are one option;"
            " pass only dead_letter_on_failure"
        )
    if on_failure is not None:
        return on_failure
    return True if on_exhaustion is None else on_exhaustion
