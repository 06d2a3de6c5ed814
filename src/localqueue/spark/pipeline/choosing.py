"""Rows of one table that are rows of another: some of them, some columns, some renamed."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa


def chosen(
    batch: pa.RecordBatch, mask: pa.Array, schema: pa.Schema, renamed: Mapping[str, str]
) -> pa.RecordBatch:
    """The rows of the mask, with the columns of the schema; ``renamed`` has their names here."""
    rows = batch.filter(mask)
    arrays = [rows[renamed.get(field.name, field.name)] for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
