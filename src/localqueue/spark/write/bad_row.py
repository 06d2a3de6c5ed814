"""A row that no message can be made of."""

from __future__ import annotations


class BadRow(Exception):
    """Which row of its batch, counted from 0, and why. A signal: users see InvalidMessage."""

    def __init__(self, place: int, why: object) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why
