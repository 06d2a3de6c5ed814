"""Tenacity's loop, with a record of every failure."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tenacity import BaseRetrying

from localqueue.retry.attempts import Attempts


class RecordingRetry(BaseRetrying):
    """One call's Tenacity: every failure that may be retried is recorded before the pause.

    Stands before Tenacity's own class among the bases.
    """

    def __init__(
        self, attempts: Attempts, statistics: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self._attempts = attempts
        self._statistics = statistics
        self._may_stop = options["stop"]
        super().__init__(**(options | {"stop": self._record_and_stop}))

    @property
    def statistics(self) -> dict[str, Any]:
        return self._statistics

    @abstractmethod
    def _record_and_stop(self, state: Any) -> Any:
        """The stop that Tenacity is given: whether this failure, recorded, was the last."""
