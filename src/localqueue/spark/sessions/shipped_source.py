"""The data source for processes that have this package from the shipped zip file alone.

Spark makes the zip file importable in its Python processes, but not in those of streams: beside the
driver they are told a folder that does not exist, and over Spark Connect their tasks one in which
the file is not (seen with 4.3). What is pickled by reference could not even be named there. So this
class is pickled by value, as a class is that was made inside a function, and its readers and
writers as bytes, with a function that finds the file before it unpickles them.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

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

_Thing = TypeVar("_Thing")


def shipped_source(zip_name: str) -> type[DataSource]:
    """``LocalQueueSource`` out of the file of this name among those that Spark was given."""

    # Nothing of this module may be used in what follows, and all imports are inside.
    def find_package() -> None:
        import sys
        from pathlib import Path

        from pyspark import SparkFiles

        # Where it is said to be; at the root of Spark's files; or in the folder of a session.
        told = Path(SparkFiles.getRootDirectory())
        for folder in (told, told.parent, *told.glob("*/"), *told.parent.glob("*/")):
            path = folder / zip_name
            if path.is_file():
                if str(path) not in sys.path:
                    sys.path.insert(1, str(path))
                return

    def source(options: MutableMapping[str, str]) -> LocalQueueSource:
        find_package()
        from localqueue.spark.data_source import LocalQueueSource

        return LocalQueueSource(options)

    def unpacked(packed: bytes) -> Any:
        find_package()
        from pyspark import cloudpickle

        return cloudpickle.loads(packed)

    def packed_when_pickled(thing: _Thing) -> _Thing:
        plain = type(thing)

        class Packed(plain):  # type: ignore[valid-type,misc]
            def __reduce__(self) -> tuple[Any, ...]:
                from pyspark import cloudpickle

                dumps: Callable[[Any], bytes] = cloudpickle.dumps
                object.__setattr__(self, "__class__", plain)
                try:
                    return unpacked, (dumps(self),)
                finally:
                    object.__setattr__(self, "__class__", Packed)

        object.__setattr__(thing, "__class__", Packed)
        return thing

    class ShippedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "localqueue"

        def schema(self) -> StructType | str:
            return source(self.options).schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return source(self.options).reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return packed_when_pickled(source(self.options).streamReader(schema))

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return source(self.options).writer(schema, overwrite)

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            return packed_when_pickled(source(self.options).streamWriter(schema, overwrite))

    return ShippedSource
