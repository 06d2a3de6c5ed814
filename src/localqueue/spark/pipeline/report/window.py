"""The time that a report is about, cut into spans of equal length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
WIDTHS = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28)),
)
SPANS = 180
"""How many spans a chart has at most: more than a phone has room for, and enough for a desk."""


@dataclass(frozen=True, slots=True)
class Window:
    """From ``start``, in seconds since 1970, ``spans`` spans of ``width`` seconds each."""

    start: int
    width: int
    spans: int

    @classmethod
    def covering(cls, first: float, last: float, *, finest: int = _MINUTE) -> Self:
        """The finest spans, not finer than that, which reach from the first moment to the last."""
        for width in (width for width in WIDTHS if width >= finest):
            start = int(first // width) * width
            spans = int((last - start) // width) + 1
            if spans <= SPANS:
                break
        return cls(start, width, spans)

    @property
    def end(self) -> int:
        return self.start + self.width * self.spans

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        """The beginnings of the spans, and the end of the last."""
        return np.linspace(self.start, self.end, self.spans + 1)

    def index(self, moments: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """In which span each moment is; moments outside are in the first or last."""
        spans = ((moments - self.start) // self.width).astype(np.int64)
        return np.clip(spans, 0, self.spans - 1)
