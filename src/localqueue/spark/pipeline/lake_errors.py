"""What the Delta library raises, in the words of our tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

from localqueue.errors import StoreError, StoreFull, StoreReadOnly
from localqueue.spark.pipeline.location import named_after, without_colours


@contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """Errors of the lake leave as StoreError, StoreFull or StoreReadOnly, with their cause."""
    try:
        yield
    except DeltaError as error:
        raise _translated(str(error), doing) from error
    except OSError as error:
        raise named_after(error, doing) from error


def _translated(text: str, doing: str) -> StoreError:
    # The library hands on the system's error as a text only.
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return StoreFull(f"no room left while {doing}; what was committed is intact")
    if "Permission denied" in text or "Read-only file system" in text:
        return StoreReadOnly(f"not allowed: {doing}")
    return StoreError(f"{doing} failed: {without_colours(text)}")
