"""What a worker configuration accepts, refuses and hands on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from localqueue.errors import ConfigurationError, InvalidArgument, WrongType
from localqueue.worker_config import PersistentWorkerConfig

NUMBERS = ("release_delay", "min_interval", "circuit_breaker_failures", "circuit_breaker_cooldown")


def options_of(config: PersistentWorkerConfig) -> dict[str, Any]:
    names = ("dead_letter_on_failure", "dead_letter_on_exhaustion", *NUMBERS, "retry_kwargs")
    return {name: getattr(config, name) for name in names}


DEFAULTS: dict[str, Any] = {
    "dead_letter_on_failure": True,
    "dead_letter_on_exhaustion": True,
    "release_delay": 0.0,
    "min_interval": 0.0,
    "circuit_breaker_failures": 0,
    "circuit_breaker_cooldown": 0.0,
    "retry_kwargs": {},
}


def test_the_defaults_dead_letter_and_never_pause() -> None:
    assert options_of(PersistentWorkerConfig()) == DEFAULTS


def test_what_is_no_option_of_the_worker_is_a_retry_option() -> None:
    wait = object()

    config = PersistentWorkerConfig(max_tries=3, wait=wait, release_delay=30)

    assert config.retry_kwargs == {"max_tries": 3, "wait": wait}
    assert config.release_delay == 30.0


@pytest.mark.parametrize("name", ["dead_letter_on_failure", "dead_letter_on_exhaustion"])
@pytest.mark.parametrize("value", [True, False])
def test_both_names_of_the_dead_letter_option_mean_the_same(name: str, value: bool) -> None:
    config = PersistentWorkerConfig(**{name: value})

    assert (config.dead_letter_on_failure, config.dead_letter_on_exhaustion) == (value, value)


def test_both_names_together_must_agree() -> None:
    config = PersistentWorkerConfig(dead_letter_on_failure=False, dead_letter_on_exhaustion=False)

    assert not config.dead_letter_on_failure
    with pytest.raises(ConfigurationError, match="are one option"):
        PersistentWorkerConfig(dead_letter_on_failure=True, dead_letter_on_exhaustion=False)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_negative_number_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} cannot be negative"):
        PersistentWorkerConfig(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"release_delay": math.nan}, InvalidArgument, "release_delay must be a finite number"),
        ({"min_interval": "1"}, WrongType, "min_interval must be a number of seconds"),
        ({"circuit_breaker_failures": 1.5}, WrongType, "circuit_breaker_failures must be an int"),
        ({"circuit_breaker_failures": True}, WrongType, "circuit_breaker_failures must be an int"),
        ({"circuit_breaker_failures": 2}, ConfigurationError, "a circuit breaker needs both"),
        ({"circuit_breaker_cooldown": 2.0}, ConfigurationError, "a circuit breaker needs both"),
        ({"dead_letter_on_failure": 1}, WrongType, "dead_letter_on_failure must be True or False"),
        (
            {"dead_letter_on_exhaustion": "no"},
            WrongType,
            "dead_letter_on_exhaustion must be True or False",
        ),
        ({"max_tries": 0}, InvalidArgument, "max_tries must be a positive integer"),
        ({"max_tries": 2, "stop": object()}, ConfigurationError, "both max_tries and stop"),
    ],
)
def test_what_a_worker_could_not_follow_is_refused(
    options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        PersistentWorkerConfig(**options)


def test_options_are_keywords_only() -> None:
    with pytest.raises(TypeError):
        PersistentWorkerConfig(True)  # type: ignore[call-arg]


def test_overrides_make_a_changed_copy() -> None:
    config = PersistentWorkerConfig(
        release_delay=5,
        circuit_breaker_failures=2,
        circuit_breaker_cooldown=9,
        max_tries=3,
        wait="exponential",
    )
    before = options_of(config)

    changed = config.with_overrides(release_delay=1, min_interval=2, wait="fixed", retry="any")

    assert options_of(config) == before
    assert options_of(changed) == before | {
        "release_delay": 1.0,
        "min_interval": 2.0,
        "retry_kwargs": {"max_tries": 3, "wait": "fixed", "retry": "any"},
    }


@pytest.mark.parametrize("name", ["dead_letter_on_failure", "dead_letter_on_exhaustion"])
def test_either_name_overrides_the_dead_letter_option(name: str) -> None:
    changed = PersistentWorkerConfig(dead_letter_on_failure=True).with_overrides(**{name: False})

    assert not changed.dead_letter_on_failure
    assert not changed.dead_letter_on_exhaustion


def test_no_overrides_make_a_plain_copy() -> None:
    config = PersistentWorkerConfig(dead_letter_on_failure=False, max_tries=3)

    copy = config.with_overrides()
    copy.retry_kwargs["max_tries"] = 9

    assert copy is not config
    assert options_of(config) == DEFAULTS | {
        "dead_letter_on_failure": False,
        "dead_letter_on_exhaustion": False,
        "retry_kwargs": {"max_tries": 3},
    }


def test_an_overriding_limit_replaces_the_other_kind() -> None:
    stop: Any = object()

    assert PersistentWorkerConfig(stop=stop).with_overrides(max_tries=3).retry_kwargs == {
        "max_tries": 3
    }
    assert PersistentWorkerConfig(max_tries=3).with_overrides(stop=stop).retry_kwargs == {
        "stop": stop
    }


def test_an_override_is_checked_like_an_option() -> None:
    with pytest.raises(InvalidArgument, match="release_delay cannot be negative"):
        PersistentWorkerConfig().with_overrides(release_delay=-1)


def test_configurations_are_objects_not_values() -> None:
    assert PersistentWorkerConfig() != PersistentWorkerConfig()


def test_a_configuration_shows_its_options() -> None:
    assert repr(PersistentWorkerConfig(max_tries=3)) == (
        "PersistentWorkerConfig(dead_letter_on_failure=True, release_delay=0.0, min_interval=0.0,"
        " circuit_breaker_failures=0, circuit_breaker_cooldown=0.0, max_tries=3)"
    )
