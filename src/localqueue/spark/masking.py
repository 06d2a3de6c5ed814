"""No error that leaves a reader or a writer carries a password of the URLs in its options.

Spark writes what a data source raises into its logs, its event log, the query's exception and the
web page of the query. What we raise ourselves shows URLs masked; but a driver's error may hold the
connection string, or the password alone, so every error is gone through where it leaves our code.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, TypeVar

from localqueue.errors import StoreError
from localqueue.spark.options import Options
from localqueue.stores.masking import MASK, masked, secrets_of

__all__ = ["hiding", "masked", "without_secrets"]

_Class = TypeVar("_Class", bound=type)


@contextmanager
def hiding(*urls: str) -> Iterator[None]:
    """What is raised inside leaves with the same type and without the passwords of these URLs.

    Causes, contexts and notes are gone through too. An error whose text cannot be changed is
    replaced by a ``StoreError`` that says the same.
    """
    try:
        yield
    except Exception as error:
        hidden = _hidden(error, frozenset().union(*map(secrets_of, urls)), set())
        if hidden is error:
            raise
        raise hidden.with_traceback(error.__traceback__) from hidden.__cause__


def without_secrets(cls: _Class) -> _Class:
    """A class decorator: ``hiding`` around every public method and the constructor.

    For readers and writers, whose methods Spark calls in several processes. The URLs are those of
    the ``Options`` that the object has or is called with: the store's and the staging directory's.
    An iterator that a method returns is watched as well, while it runs.
    """
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _watched(method))
    return cls


def _watched(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: object, *arguments: Any, **named: Any) -> Any:
        with hiding(*_urls_of(self), *_urls_in((*arguments, *named.values()))):
            answer = method(self, *arguments, **named)
        return _watched_iterator(self, answer) if isinstance(answer, Iterator) else answer

    return call


def _watched_iterator(owner: object, iterator: Iterator[Any]) -> Iterator[Any]:
    with hiding(*_urls_of(owner)):
        yield from iterator


def _urls_of(owner: object) -> list[str]:
    return list(_urls_in(vars(owner).values()))


def _urls_in(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, Options):
            yield value.url
            yield value.staging_directory or ""
        elif isinstance(value, Mapping):
            found = (value.get(name) for name in ("url", "stagingDirectory"))
            yield from (url for url in found if isinstance(url, str))


def _hidden(error: BaseException, secrets: frozenset[str], seen: set[int]) -> BaseException:
    """The error without the secrets: itself, changed, or another in its place."""
    seen.add(id(error))
    _change(error, secrets)
    hidden = _group_hidden(error, secrets, seen)
    shown = f"{hidden!s}\n{hidden!r}"
    if _clean(shown, secrets) != shown:
        hidden = StoreError(f"{type(error).__name__}: {_clean(str(error), secrets)}")
    cause, context = error.__cause__, error.__context__
    if cause is not None and id(cause) not in seen:
        cause = _hidden(cause, secrets, seen)
    if context is not None and id(context) not in seen:
        context = _hidden(context, secrets, seen)
    suppressed = error.__suppress_context__
    hidden.__cause__, hidden.__context__ = cause, context
    hidden.__suppress_context__ = suppressed
    return hidden


def _group_hidden(error: BaseException, secrets: frozenset[str], seen: set[int]) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    inside = [_hidden(one, secrets, seen) for one in error.exceptions]
    if all(map(operator.is_, inside, error.exceptions)):
        return error
    return error.derive(inside)


def _change(error: BaseException, secrets: frozenset[str]) -> None:
    error.args = tuple(_clean(argument, secrets) for argument in error.args)
    # What str() shows may be an attribute: the file name of an OSError, the path of our own errors.
    for name in (*vars(error), "strerror", "filename", "filename2", "reason", "msg"):
        value = getattr(error, name, None)
        if isinstance(value, str | list | tuple | PurePath):
            try:
                setattr(error, name, _clean(value, secrets))
            except (AttributeError, TypeError):
                pass  # not to be changed: then its text decides, and it is replaced


def _clean(value: Any, secrets: frozenset[str]) -> Any:
    if isinstance(value, str):
        text = masked(value)
        for secret in sorted(secrets, key=len, reverse=True):
            text = _pattern(secret).sub(MASK, text)
        return text
    if isinstance(value, PurePath):
        return type(value)(_clean(str(value), secrets))
    if type(value) in (list, tuple):
        return type(value)(_clean(part, secrets) for part in value)
    return value


def _pattern(secret: str) -> re.Pattern[str]:
    # One or two letters as a password would otherwise be cut out of every word.
    text = re.escape(secret)
    return re.compile(text if len(secret) > 3 else rf"(?<!\w){text}(?!\w)")
