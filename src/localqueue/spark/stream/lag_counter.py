"""How many rows a stream is behind, for the progress of its query."""

from __future__ import annotations

from localqueue.spark.read.scan import Source


class LagCounter:
    """Counts what changed since the last time: a long backlog is counted once, not every batch."""

    def __init__(self) -> None:
        self._after = self._upto = self._rows = 0

    def count(self, source: Source, after: int, upto: int) -> int:
        """How many chosen events (after, upto] has."""
        if after == upto:
            self._rows = 0
        elif self._after <= after <= self._upto <= upto:
            read = source.journal_count(self._after, after)
            self._rows += source.journal_count(self._upto, upto) - read
        else:
            self._rows = source.journal_count(after, upto)
        self._after, self._upto = after, upto
        return self._rows
