"""What kind of function somebody gave: whether its work is done when it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from localqueue.errors import ConfigurationError


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Also for partial functions, methods and objects that are called."""
    return _is(inspect.iscoroutinefunction, function)


def check_is_done_when_it_returns(
    function: Callable[..., Any], *, who: str, instead: str | None
) -> None:
    """Refuse a function whose call only makes what would do the work; ``instead`` awaits it."""
    if is_coroutine_function(function):
        hint = "" if instead is None else f"; use {instead}"
        raise ConfigurationError(
            f"{who} would not await the coroutine function {_name(function)}{hint}"
        )
    check_is_no_generator_function(function, who=who)


def check_is_no_generator_function(function: Callable[..., Any], *, who: str) -> None:
    """A generator function has done nothing when it returns, and nobody would iterate."""
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise ConfigurationError(
            f"{who} would not run the generator function {_name(function)}:"
            " let a function iterate over it and return"
        )


def signature_of(
    function: Callable[..., Any], *, follow_wrapped: bool = True
) -> inspect.Signature | None:
    """How the function is called, if it tells. An annotation that is not there yet is no matter."""
    with suppress(Exception):
        return inspect.signature(function, follow_wrapped=follow_wrapped)
    return None


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    return kind(function) or kind(type(function).__call__)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
