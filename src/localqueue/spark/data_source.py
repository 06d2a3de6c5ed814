"""``format("localqueue")``: what Spark asks for, handed to the module that does it.

Spark makes an object of this class from the options in a Python process beside the driver, often
several times for one query, and pickles it. So it holds nothing but the options, and opens nothing.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from localqueue.errors import ConfigurationError
from localqueue.spark.masking import without_secrets
from localqueue.spark.options import Options
from localqueue.spark.python_process import settle_in


@without_secrets
class LocalQueueSource(DataSource):
    """Queues as a source and a sink, in batches and streams; ``register(spark)`` makes it known."""

    @classmethod
    def name(cls) -> str:
        return "localqueue"

    def schema(self) -> StructType | str:
        options = Options.parse(self.options, "reading")
        from localqueue.spark.read.schema import spark_schema

        settle_in()
        return spark_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from localqueue.spark.read.batch_reader import BatchReader

        settle_in()
        return BatchReader(Options.parse(self.options, "reading"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        settle_in()
        options = Options.parse(self.options, "reading")
        if options.where is not None and (options.lease or options.content != "journal"):
            raise ConfigurationError(
                "option where: a stream of messages cannot be filtered by the store, only one of"
                " the journal; filter the DataFrame"
            )
        if options.lease:
            from localqueue.spark.lease.reader import LeaseStreamReader

            return LeaseStreamReader(options, schema)
        from localqueue.spark.stream.reader import JournalStreamReader

        return JournalStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from localqueue.spark.write.writer import BatchWriter

        settle_in()
        return BatchWriter(Options.parse(self.options, "writing"), schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from localqueue.spark.write.writer import StreamWriter

        settle_in()
        return StreamWriter(Options.parse(self.options, "writing"), schema, overwrite)
