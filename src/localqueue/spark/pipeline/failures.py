"""What a query failed with: our own error again, out of the text that Spark makes of it."""

from __future__ import annotations

import re
from typing import NoReturn

from localqueue import errors
from localqueue.errors import LocalQueueError, StoreError

# Spark shows a Python error as the last line of its traceback, somewhere inside its own text.
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt): .+$", re.MULTILINE)
_OURS = re.compile(r"localqueue\.errors\.(\w+): (.+)")


def raise_failure_of(error: BaseException) -> NoReturn:
    """Raise it, with what it was found in as its cause."""
    failure = failure_of(error)
    if failure is error:
        raise failure
    raise failure from error


def failure_of(error: BaseException) -> LocalQueueError:
    """The error of our tree that the query failed with; StoreError for a failure of Spark's own."""
    if isinstance(error, LocalQueueError):
        return error
    text = str(error)
    for name, sentence in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, LocalQueueError):
            try:
                return kind(sentence.strip())
            except TypeError:
                # One that is made of other things than a sentence.
                return StoreError(f"{name}: {sentence.strip()}")
    return StoreError(f"the pipeline's query failed: {_cause(text) or type(error).__name__}")


def _cause(text: str) -> str:
    """The last line of a Python traceback inside the text, else its first line."""
    raised = _RAISED.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return raised[-1].strip() if raised else next(iter(lines), "")
