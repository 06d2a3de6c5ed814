"""Which key a call is retried under."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from localqueue.checks import check_key
from localqueue.errors import ConfigurationError, InvalidArgument
from localqueue.retry.functions import signature_of

KeyFunction = Callable[..., Any]
"""Called with the arguments of the call; or, if its parameters are called ``fn``, ``args`` and
``kwargs``, with the function and its arguments."""


def key_from_argument(name: str) -> KeyFunction:
    """The key is the argument of this name, also when it is left at its default."""
    _check_name("argument name", name)

    return _ArgumentKey(name)


def key_from_attr(
    argument_name: str, attribute_name: str, *, prefix: str | None = None
) -> KeyFunction:
    """The key is an attribute of the argument of this name: ``value``, or ``prefix:value``."""
    _check_name("argument name", argument_name)
    _check_name("attribute name", attribute_name)
    if prefix is not None:
        _check_name("prefix", prefix)

    return _ArgumentKey(argument_name, attribute_name, prefix)


def idempotency_key_from_id(argument_name: str, *, prefix: str | None = None) -> KeyFunction:
    """The key is the ``id`` of the argument of this name."""
    return key_from_attr(argument_name, "id", prefix=prefix)


@dataclass(frozen=True, slots=True)
class _ArgumentKey:
    """The key is an argument or one of its attributes; which one can be asked before a call."""

    argument: str
    attribute: str | None = None
    prefix: str | None = None

    def __call__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str:
        found = argument_of(self.argument, fn, args, kwargs)
        where = f"argument {self.argument!r}"
        if self.attribute is not None:
            where = f"attribute {self.attribute!r} of {where}"
            if not hasattr(found, self.attribute):
                raise InvalidArgument(f"{where} was not found: there is no retry key")
            found = getattr(found, self.attribute)
        value = _as_key(found, where)
        return value if self.prefix is None else f"{self.prefix}:{value}"


def check_key_function(key_fn: KeyFunction | None, fn: Callable[..., Any]) -> None:
    """Refuse a key from an argument that the function cannot be given."""
    if not isinstance(key_fn, _ArgumentKey):
        return
    # A wrapper may take the argument for itself, or pass it on: then one of the two has it.
    for follow_wrapped in (False, True):
        signature = signature_of(fn, follow_wrapped=follow_wrapped)
        if signature is None or key_fn.argument in signature.parameters:
            return
        if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            return
    raise ConfigurationError(
        f"{getattr(fn, '__qualname__', fn)}{signature} has no argument {key_fn.argument!r}"
        " to make a retry key from"
    )


def resolve_key(
    fixed: str | None,
    key_fn: KeyFunction | None,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> str:
    """The key of one call; ValueError when there is none."""
    if fixed is not None:
        return check_key("retry key", fixed)
    if key_fn is None:
        raise ConfigurationError("a persistent retry needs key= or key_fn=")
    if _wants_the_call(key_fn):
        found = key_fn(fn, args, kwargs)
    else:
        found = key_fn(*args, **kwargs)
    return _as_key(found, "key_fn")


def argument_of(
    name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The value that the parameter of this name has in the call."""
    try:
        bound = inspect.signature(fn).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        # Called in a way that cannot work, which is for the function to say; or without signature.
        bound = None
    if bound is not None:
        bound.apply_defaults()
        if name in bound.arguments:
            return bound.arguments[name]
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD and name in kwargs:
                return kwargs[name]
    elif name in kwargs:
        return kwargs[name]
    raise InvalidArgument(f"argument {name!r} was not found: there is no retry key")


def _wants_the_call(key_fn: KeyFunction) -> bool:
    try:
        return list(inspect.signature(key_fn).parameters) == ["fn", "args", "kwargs"]
    except (TypeError, ValueError):
        return False


def _as_key(value: Any, where: str) -> str:
    """Ids are often numbers or UUIDs; what is nothing is no key."""
    if value is None or value == "":
        raise InvalidArgument(f"{where} is {value!r}: there is no retry key")
    return check_key("retry key", str(value))


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{what} must be a string that is not empty, not {name!r}")
