"""What executors say about the messages of a job, when it is over and while it runs."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Answer: TypeAlias = tuple[str, Any] | None
"""How one handler ended: None when it returned None, else ("returned", the pickled result) or
("raised", the packed error)."""


class Ran(NamedTuple):
    """The job came to its end. Those behind the last answer have not begun."""

    answers: list[Answer]
    seconds: list[float]
    """How long each handler took."""


class DiedBefore(NamedTuple):
    """An earlier attempt of this task has died; this one has called no handler."""

    attempt: int


class Unloadable(NamedTuple):
    """The handler cannot be made here."""

    error: dict[str, Any]


class Unreadable(NamedTuple):
    """The messages cannot be; no handler was called."""

    error: dict[str, Any]


class News(NamedTuple):
    """What has become of a job so far, as early as it is worth telling."""

    job: int
    first: int
    """The place of the first answer."""
    answers: list[Answer]
    seconds: list[float]
    running: int
    """The place of the message whose handler runs, or is about to."""
    limit: int
    """From this place on no handler will begin: the one that runs takes long."""
    notes: list[tuple[int, str]]
    """Progress that handlers reported, each with its place."""


class Word(NamedTuple):
    """What a job is told while it runs."""

    job: int
    place: int
    """Of the message whose handler should end; -1 when no other should begin."""
    reason: str
    """The name of an error class of this package."""
    text: str
