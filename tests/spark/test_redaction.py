"""What Spark shows of a query has no password in it: found by Java as it is by us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from localqueue.spark.sessions.redaction import PATTERN
from localqueue.stores.masking import MASK, masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "s3cr3t"
TEXTS = [
    "postgresql://ada:s3cr3t%21@db.example/jobs",
    "postgresql://ada:s3/cr3t@s3cr3t@host/jobs, and more",
    "redis://:s3cr3t@host:6379/0",
    "postgresql://host/jobs?sslpassword=s3cr3t&x=1",
    "s3://bucket/folder?access_key=AKIA&secret_key=s3cr3t&region=eu",
    "s3://bucket?aws_secret_access_key=s3cr3t",
    "x://host/?credential=s3cr3t;s3cr3t",
    "x://host/?CREDENTIALS=s3cr3t\\s3cr3t",
    "x://host/?api_key=s3cr3t x://host/?apikey=s3cr3t",
    "host=db passwd = s3cr3t PWD=s3cr3t authToken=s3cr3t",
    "host=db password='s3cr3t it\\'s s3cr3t' port=1",
    "host=db password='" + "s3cr3t " * 5_000 + "' port=1",
    "host=db password=" + "s3cr3t\\u" * 100,
    "sqlite:////data/a:b@c.sqlite3",
    "postgresql://ada@host/jobs?password=&x=1",
    "a pass is not a password, nor is user=ada",
]


def test_java_finds_the_same_passwords_as_we_do(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    rows = spark.createDataFrame([(text,) for text in TEXTS], "text string").coalesce(1)

    shown = [row[0] for row in rows.select(f.regexp_replace("text", PATTERN, MASK)).collect()]

    assert shown == [masked(text) for text in TEXTS]
    assert SECRET not in "".join(shown)


@pytest.mark.parametrize("text", TEXTS)
def test_we_find_them_all(text: str) -> None:
    assert SECRET not in masked(text)
