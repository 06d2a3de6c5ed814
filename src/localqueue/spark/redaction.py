"""What Spark itself shows of a query: without the passwords of URLs in it.

Spark hides an option named ``url`` in plans. Spark Connect also writes the text of each request
into the event log, options and all; that text, as every other that Spark shows of a query, goes
through ``spark.sql.redaction.string.regex``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTING = "spark.sql.redaction.string.regex"

PATTERN = (
    r"(?<=://[^:/?#@\s]{0,200}:)[^@\s]+(?=@)"
    r"|(?i:(?<=[?&;\s](?:password|passwd|pwd|secret|token|sslpassword|api_?key)=)[^&;\s'\"\\]+)"
)
"""A password, as Java's regular expressions find it; ``stores.masking`` is the same in Python."""


def redact(spark: SparkSession) -> None:
    """Have Spark redact passwords in URLs, beside what it is told to redact already."""
    present = spark.conf.get(_SETTING, "")
    if PATTERN not in (present or ""):
        spark.conf.set(_SETTING, f"(?:{present})|{PATTERN}" if present else PATTERN)
