"""Arguments that several commands take: stores, times and lengths of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import typer

from localqueue.stores.open import absolute_url

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def span(option: str, text: str) -> timedelta:
    """A length of time; seconds without a unit."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is no length of time; write 30s, 5m, 12h, 7d or 4w", param_hint=option
        )
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])


def pairs(option: str, given: Sequence[str] | None) -> list[tuple[str, timedelta]]:
    """Each NAME=TIME of an option that can be given several times; with a unit, always."""
    found = []
    for text in given or ():
        name, is_pair, length = text.rpartition("=")
        if not is_pair or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=TIME", param_hint=option)
        if length.strip()[-1:].isdigit():
            raise typer.BadParameter(
                f"{text!r} has no unit; write {text}s, {text}m, {text}h or {text}d",
                param_hint=option,
            )
        found.append((name, span(option, length)))
    return found


def moment(option: str, text: str | None) -> datetime | None:
    """A time with its zone or in UTC, or how long ago."""
    if text is None:
        return None
    if _SPAN.fullmatch(text.strip()):
        return datetime.now(UTC) - span(option, text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-01-31T08:00 or 24h", param_hint=option
        ) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def store_url(text: str) -> str:
    """A path stands for the SQLite file that it names."""
    if not text:
        return text
    return absolute_url(text if "://" in text else f"sqlite:///{quote(text)}")
