"""Named moments at which a test can interrupt, kill or look: nothing happens there otherwise.

Code that promises an end state after a crash says ``reach("outbox.after-ack")`` between its steps.
A test listens, and dies where it wants to. Without a listener this costs one comparison.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

_listener: Callable[[str], object] | None = None


def reach(point: str) -> None:
    """This moment has come. What the listener raises is raised here."""
    if _listener is not None:
        _listener(point)


@contextlib.contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    """Tell it the name of every moment that any thread of this process reaches."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
