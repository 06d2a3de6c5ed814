"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

NOTHING = "–"
_DURATIONS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))


def _digits(value: float) -> str:
    """Up to three digits that count."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    text = f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")


def count(value: float | None) -> str:
    """A whole number, shortened from ten thousand on: 12.3k."""
    if value is None or math.isnan(value):
        return NOTHING
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (10 * size if size == 1e3 else size):
            return f"{_digits(value / size)}{letter}"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else _digits(value)


def duration(seconds: float | None) -> str:
    if seconds is None or math.isnan(seconds):
        return NOTHING
    for size, name in _DURATIONS:
        # 999.9 µs is better read as 1 ms.
        if seconds >= size * 0.9995:
            return f"{_digits(seconds / size)} {name}"
    return "0 s"


def percent(share: float | None) -> str:
    if share is None or math.isnan(share):
        return NOTHING
    value = share * 100
    if 99 < value < 100:
        # The nines are what matters.
        return f"{math.floor(value * 1000) / 1000:.3f}".rstrip("0").rstrip(".") + " %"
    return f"{_digits(value) if value >= 0.01 or value == 0 else '<0.01'} %"


def rate(per_second: float | None) -> str:
    """So many a second, a minute or an hour, whichever is a number to remember."""
    if per_second is None or math.isnan(per_second):
        return NOTHING
    factor, unit = rate_unit(per_second)
    return unit.show(float(f"{per_second * factor:.3g}"))


def rate_unit(most_per_second: float) -> tuple[int, Unit]:
    """By what to multiply rates of which this is the greatest, and how to show them then."""
    factors = {1: PER_SECOND, 60: PER_MINUTE, 3600: PER_HOUR}
    if most_per_second <= 0:
        return 1, PER_SECOND
    found = (factor for factor in factors if most_per_second * factor >= 1)
    factor = next(found, 3600)
    return factor, factors[factor]


def times(factor: float | None) -> str:
    return NOTHING if factor is None or math.isnan(factor) else f"{_digits(factor)}×"


def size(n_bytes: float) -> str:
    for limit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= limit:
            return f"{_digits(n_bytes / limit)} {name}"
    return f"{n_bytes:.0f} B"


def moment(at: float | datetime | None) -> str:
    if at is None:
        return NOTHING
    found = at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, slots=True)
class Unit:
    """How a chart shows its values; ``name`` is how the page's script knows it."""

    name: str
    number: Callable[[float | None], str]
    suffix: str = ""

    def show(self, value: float | None) -> str:
        text = self.number(value)
        return text if text == NOTHING else text + self.suffix


COUNT = Unit("count", count)
PER_SECOND, PER_MINUTE = Unit("count", count, "/s"), Unit("count", count, "/min")
PER_HOUR = Unit("count", count, "/h")
DURATION, PERCENT = Unit("duration", duration), Unit("percent", percent)
TIMES = Unit("times", times)
