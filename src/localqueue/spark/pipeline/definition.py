"""What a table of the lake is: its name, its columns and the version of that layout."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

MOMENT = pa.timestamp("us", tz="UTC")
"""A time of the store. Delta Lake has microseconds, and so has Spark."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A table as this release writes it.

    A new release may add columns at the end and then raises ``version``: older tables get the
    columns when they are next written to, and rows that are there already have nulls in them.
    """

    name: str
    schema: pa.Schema
    description: str
    statistics: tuple[str, ...]
    """The columns whose smallest and greatest value the log keeps for each file."""
    moment: str
    """The column of time that retention goes by; one of ``statistics``."""
    version: int = 1
    properties: tuple[tuple[str, str], ...] = ()
    """Texts that are kept with the table from its beginning."""


def columns(*pairs: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in pairs])
