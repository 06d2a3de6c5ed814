"""A lake: Delta tables in a folder or an object store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable

from localqueue.errors import StoreUnsupported
from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.lake_errors import lake_errors
from localqueue.spark.pipeline.location import Location
from localqueue.spark.pipeline.table import Table, create_table


class Lake:
    """The tables under one folder or URL.

    Nothing is made by looking: ``table`` answers None for one that does not exist. Any tool that
    reads Delta Lake reads them; writing is for pipelines, see ``Table``.
    """

    def __init__(
        self, location: str | Path, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self.location = Location.parse(location, storage_options)
        if self.location.is_local and Path(self.location.uri).is_file():
            raise StoreUnsupported(f"{self.location} is a file, and a lake is a folder")

    def __repr__(self) -> str:
        return f"Lake({str(self.location)!r})"

    def table(self, name: str) -> Table | None:
        """The table as it is now; None when there is none."""
        location = self.location / name
        with lake_errors(f"opening the table {name}"):
            if not DeltaTable.is_deltatable(location.uri, dict(location.options)):
                return None
            delta = DeltaTable(location.uri, storage_options=dict(location.options))
        return Table(name, location, delta)

    def create(self, definition: Definition) -> Table:
        """The table, made if it does not exist, with all columns that this release writes.

        StoreUnsupported when a newer release has changed it; it is left as it is then.
        """
        create_table(self.location / definition.name, definition)
        table = self.table(definition.name)
        assert table is not None
        table.evolve(definition)
        return table
