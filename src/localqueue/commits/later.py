"""What cannot be done now, and is done again later."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

log = logging.getLogger("localqueue.commits")


@contextlib.contextmanager
def tried_again_later(queue: str, what: str) -> Iterator[None]:
    """Log what is raised inside, and go on: somebody comes back to it, as ``recover`` does."""
    try:
        yield
    except Exception:
        log.warning("queue %r: %s; it is tried again later", queue, what, exc_info=True)
