"""The data source for processes that have this package from the shipped zip file alone.

Spark makes the zip file importable in all its Python processes but one: that of a stream beside the
driver, which is told a folder that is not there (seen with 4.3). A class that is pickled by
reference could not even be named in it. So this one is pickled by value, which a class made inside
a function is, and finds the file before it uses anything of the package.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from localqueue.spark.data_source import LocalQueueSource


def shipped_source(zip_name: str) -> type[DataSource]:
    """``LocalQueueSource`` out of the file of this name among those that Spark was given."""

    # Inside of these functions nothing of this module may be used, and all imports are their own.
    def source(options: MutableMapping[str, str]) -> LocalQueueSource:
        import sys
        from pathlib import Path

        from pyspark import SparkFiles

        # Where it is said to be, at the root (classic), or in a session's own folder (Connect).
        told = Path(SparkFiles.getRootDirectory())
        for folder in (told, told.parent, *told.parent.glob("*/")):
            path = folder / zip_name
            if path.is_file():
                if str(path) not in sys.path:
                    sys.path.insert(1, str(path))
                break
        from localqueue.spark.data_source import LocalQueueSource

        return LocalQueueSource(options)

    class ShippedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "localqueue"

        def schema(self) -> StructType | str:
            return source(self.options).schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return source(self.options).reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return source(self.options).streamReader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return source(self.options).writer(schema, overwrite)

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            return source(self.options).streamWriter(schema, overwrite)

    return ShippedSource
