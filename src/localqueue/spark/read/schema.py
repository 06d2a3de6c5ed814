"""The columns of messages, dead letters and the journal, with their types.

Times are timestamps of store time, which is the wall clock's unless that was set. ``body`` has the
bytes as they are stored; it is there when it is asked for.
"""

from __future__ import annotations

from difflib import get_close_matches

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from localqueue.errors import ConfigurationError
from localqueue.spark.options import Options
from localqueue.spark.payload.schema import ddl, payload_names
from localqueue.spark.payload.types import check_type

_TEXT, _NUMBER, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()
_SECONDS, _BYTES = DoubleType(), BinaryType()

MESSAGE_COLUMNS: dict[str, DataType] = {
    "id": _TEXT,
    "queue": _TEXT,
    "state": _TEXT,
    "value": _TEXT,
    "headers": MapType(_TEXT, _TEXT),
    "codec": _TEXT,
    "priority": _NUMBER,
    "ordering_key": _TEXT,
    "dedupe_key": _TEXT,
    "attempts": _NUMBER,
    "failures": _NUMBER,
    "crashes": _NUMBER,
    "created_at": _TIME,
    "available_at": _TIME,
    "expires_at": _TIME,
    "leased_until": _TIME,
    "leased_by": _TEXT,
    "failed_at": _TIME,
    "last_error": _TEXT,
    "body": _BYTES,
}
"""``value`` is the JSON text, null for other codecs; ``headers`` is null when there are none."""

JOURNAL_COLUMNS: dict[str, DataType] = {
    "position": _TEXT,
    "seq": _LONG,
    "shard": _TEXT,
    "at": _TIME,
    "queue": _TEXT,
    "message_id": _TEXT,
    "kind": _TEXT,
    "from_state": _TEXT,
    "to_state": _TEXT,
    "n": _LONG,
    "attempt": _NUMBER,
    "worker": _TEXT,
    "by": _TEXT,
    "error_type": _TEXT,
    "error_text": _TEXT,
    "fingerprint": _TEXT,
    "enqueued_at": _TIME,
    "leased_at": _TIME,
    "waited": _SECONDS,
    "ran": _SECONDS,
    "value": _TEXT,
    "detail": _TEXT,
    "body": _BYTES,
}
"""``waited`` and ``ran`` are seconds. ``value`` is there where a journal keeps payloads."""

ON_REQUEST = frozenset({"body"})


def columns_of(options: Options) -> dict[str, DataType]:
    """All columns that this content can have."""
    return JOURNAL_COLUMNS if options.content == "journal" else MESSAGE_COLUMNS


def chosen_columns(options: Options) -> tuple[str, ...]:
    """The columns beside those of the payload; ConfigurationError for one that does not exist."""
    known = columns_of(options)
    if options.columns is None:
        left_out = ON_REQUEST | ({"value"} if options.payload_schema is not None else set())
        return tuple(name for name in known if name not in left_out)
    for name in options.columns:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigurationError(
                f"option columns: {options.content} have no column {name!r}; {hint}"
                f"they have {', '.join(known)}"
            )
    return options.columns


def spark_schema(options: Options) -> StructType | str:
    """What a read gives: the chosen columns, then those of the payload.

    A payload that is described in DDL makes it DDL as well, which Spark itself parses.
    ConfigurationError when a field of the payload is called like a chosen column.
    """
    known = columns_of(options)
    own = StructType()
    for name in chosen_columns(options):
        own.add(name, known[name])
    if options.payload_schema is None:
        return own
    payload = payload_names(options.payload_schema)
    # As Spark compares names.
    taken = {name.lower() for name in own.names}
    for name in payload:
        if name.lower() in taken:
            raise ConfigurationError(
                f"the payload's field {name!r} is called like a column of {options.content};"
                " choose the columns without it by the option columns"
            )
    return ddl(own, options.payload_schema)


def payload_fields(options: Options, schema: StructType) -> StructType:
    """The part of Spark's schema that is the payload's.

    ConfigurationError when the rest is not what this content has: a schema of the caller's own.
    """
    own = chosen_columns(options)
    known = columns_of(options)
    found = [(field.name, field.dataType) for field in schema.fields[: len(own)]]
    if found != [(name, known[name]) for name in own] or (
        options.payload_schema is None and len(schema) > len(own)
    ):
        raise ConfigurationError(
            "the schema of a queue is not given by schema(...): choose columns by the option"
            " columns, and describe the payload by the option payloadSchema"
        )
    payload = StructType(schema.fields[len(own) :])
    check_type(payload, "")
    return payload
