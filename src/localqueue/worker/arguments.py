"""Whether a handler can be called with a message's value and what a call adds to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localqueue.errors import ConfigurationError, WrongType
from localqueue.retry.functions import signature_of


class Arguments:
    """Those that a handler takes. A mistake is the caller's: no message is charged for it."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        """ConfigurationError when there is no place for the value."""
        self._name = getattr(handler, "__qualname__", None) or repr(handler)
        # What a wrapper takes itself counts, and not what is behind it.
        self._signature = signature_of(handler, follow_wrapped=False)
        self._value_is_enough = self._signature is None
        if self._signature is None:
            return
        try:
            self._signature.bind_partial(None)
        except TypeError:
            raise ConfigurationError(
                f"the handler {self._name}{self._signature} cannot be called with the value of a"
                " message: it needs a positional argument"
            ) from None
        self._value_is_enough = self._fits((), {}) is None

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """WrongType when the handler cannot be called so."""
        if self._value_is_enough and not args and not kwargs:
            return
        reason = self._fits(args, kwargs)
        if reason is not None:
            raise WrongType(f"{self._name}{self._signature} cannot be called so: {reason}")

    def _fits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TypeError | None:
        if self._signature is not None:
            try:
                self._signature.bind(None, *args, **kwargs)
            except TypeError as error:
                return error
        return None
