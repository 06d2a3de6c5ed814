"""Defects that a test plants in a worker's process to see that they are caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localqueue.message import QueueMessage
from localqueue.stores.sqlite.verbs import liveness as verbs
from localqueue.stores.sqlite.verbs import settle, sweep
from localqueue.workers.liveness import Liveness
from localqueue.workers.thread import InThread
from tests.faults import defects as of_the_driver


def runs_handlers_twice() -> None:
    """A delivery is one call of the handler; this worker makes two of it."""
    call = InThread.call

    def call_twice(hand: InThread, message: QueueMessage[Any]) -> Any:
        call(hand, message)
        return call(hand, message)

    InThread.call = call_twice  # type: ignore[method-assign,assignment]


def charges_prefetched() -> None:
    """Whatever a dead worker held is taken for what killed it."""

    def end_and_charge(*given: Any, crashed: bool, **options: Any) -> None:
        sweep.end_lease(*given, crashed=True, **options)

    verbs.end_lease = end_and_charge  # type: ignore[attr-defined]


def hides_what_runs() -> None:
    """The sign of life does not say which message runs, so nobody is charged."""
    Liveness.begin = lambda *_: None  # type: ignore[method-assign]


def takes_stale_receipts() -> None:
    """Whoever had a lease once may end the one that somebody else has now."""
    settle._may_act = lambda *_: True


DEFECTS: dict[str, Callable[[], None]] = {
    kind.__name__: kind
    for kind in (runs_handlers_twice, charges_prefetched, hides_what_runs, takes_stale_receipts)
}


def plant(defect: str | None) -> None:
    """Give this process the defect: one of these, or one of the driver's."""
    if defect in DEFECTS:
        DEFECTS[defect]()
    else:
        of_the_driver.plant(defect)
