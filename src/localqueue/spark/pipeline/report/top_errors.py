"""The errors that happened most often, out of the gold table ``errors``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.report.reading import read_columns
from localqueue.spark.pipeline.table import Table

MOMENT = "hour"
MOST = 25
_COLUMNS = (
    *("queue", MOMENT, "fingerprint", "error_type", "error_text", "count"),
    *("first_at", "last_at", "message_id"),
)


@dataclass(frozen=True, slots=True)
class TopError:
    """Errors of one kind that differ only in their numbers, in one queue."""

    queue: str
    error_type: str
    error_text: str
    count: int
    first_at: datetime
    last_at: datetime
    message_id: str
    """One message that it happened to."""


def top_errors(
    errors: Table, since: datetime | None, until: datetime | None, most: int = MOST
) -> list[TopError]:
    """The most frequent first. Limits of time count in whole hours, as the table does."""
    hour = since.replace(minute=0, second=0, microsecond=0) if since is not None else None
    rows = read_columns(errors, _COLUMNS, MOMENT, hour, until).sort_by(MOMENT)
    if not rows.num_rows:
        return []
    known = rows.set_column(
        rows.schema.get_field_index("count"), "count", rows["count"].cast(pa.int64())
    )
    grouped = known.group_by(["queue", "error_type", "fingerprint"], use_threads=False).aggregate(
        [
            ("count", "sum"),
            ("first_at", "min"),
            ("last_at", "max"),
            ("error_text", "last"),
            ("message_id", "last"),
        ]
    )
    found = grouped.take(pc.sort_indices(grouped, [("count_sum", "descending")])[:most])
    return [
        TopError(
            row["queue"] or "",
            row["error_type"] or "",
            row["error_text_last"] or "",
            row["count_sum"],
            row["first_at_min"],
            row["last_at_max"],
            row["message_id_last"] or "",
        )
        for row in found.to_pylist()
    ]
