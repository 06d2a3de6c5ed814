"""What Spark itself shows of a query: without the passwords of URLs in it.

Spark hides an option named ``url`` in plans. Spark Connect also writes the text of each request
into the event log, options and all; that text, as every other that Spark shows of a query, goes
through ``spark.sql.redaction.string.regex``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from localqueue.stores.masking import SECRET_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTING = "spark.sql.redaction.string.regex"
_BY_THE_SPEC = "SESSION_MUTATION_IN_DECLARATIVE_PIPELINE"

PATTERN = (
    r"(?<=:)(?<=://[^:/?#@\s]{0,200}:)\S+(?=@)"
    rf"|(?i:(?<=[=\s])(?<=(?:{SECRET_NAMES})\w{{0,50}}\s{{0,5}}=\s{{0,5}})"
    r"(?:'[^'\\]*+(?:\\.[^'\\]*+){0,200}+'"
    r"|(?=[^&\s'\"\\]|\\[^'\"])[^&\s'\"\\]*+(?:\\[^'\"][^&\s'\"\\]*+){0,200}+))"
)
"""A password, as Java's regular expressions find it; ``stores.masking`` is the same in Python.

What is looked behind has to have an end, and so have groups that are repeated: Java takes them from
the stack. A quote that is escaped ends a value, too: the texts of requests have their strings in
quotes.
"""


def redact(spark: SparkSession) -> None:
    """Have Spark redact passwords in URLs, beside what it is told to redact already.

    In a file of Declarative Pipelines nothing is set: Spark allows it to the pipeline's spec alone.
    """
    present = spark.conf.get(_SETTING, "")
    if PATTERN in (present or ""):
        return
    try:
        spark.conf.set(_SETTING, f"(?:{present})|{PATTERN}" if present else PATTERN)
    except PySparkException as error:
        if not (error.getCondition() or "").startswith(_BY_THE_SPEC):
            raise
