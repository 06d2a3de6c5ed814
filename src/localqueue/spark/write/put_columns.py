"""Which columns of a DataFrame say what a message is, decided before any row is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.types import (
    DataType,
    DecimalType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

from localqueue.checks import check_queue_name
from localqueue.errors import ConfigurationError
from localqueue.spark.options import Options
from localqueue.spark.write.json_values import converter


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_text_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


def _is_whole(kind: DataType) -> bool:
    return isinstance(kind, IntegralType)


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, NumericType) and not isinstance(kind, DecimalType)


VALUE = "value"
BESIDE_VALUE: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "queue": (_is_text, "a string"),
    "headers": (_is_text_map, "a map of strings to strings"),
    "priority": (_is_whole, "a whole number"),
    "delay": (_is_number, "a number of seconds"),
    "ttl": (_is_number, "a number of seconds"),
    "dedupe_key": (_is_text, "a string"),
    "ordering_key": (_is_text, "a string"),
}
"""What a row may say of its message beside the value, and of which type the column has to be."""


@dataclass(frozen=True, slots=True)
class PutColumns:
    """Where things are in a row. It can be pickled."""

    queue: str | None
    """The queue of all rows; None when each row names its own."""
    value: int | None
    """The column of the value; None when the payload is made of columns."""
    payload: StructType
    """The columns that make the payload object, or the column ``value`` alone."""
    message: dict[str, int]
    """The message columns that there are, and where."""
    places: tuple[int, ...]
    """Where the columns of ``payload`` are."""

    @property
    def is_text(self) -> bool:
        """Whether the payload comes as JSON text."""
        return self.value is not None and _is_text(self.payload.fields[0].dataType)


def put_columns(schema: StructType, options: Options) -> PutColumns:
    """Read the schema of what is written; ConfigurationError when no messages can be made of it."""
    names = [name.lower() for name in schema.fieldNames()]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"there are several columns {name!r}; leave one")
    message = {name: place for place, name in enumerate(names) if name in BESIDE_VALUE}
    for name, place in message.items():
        fits, what = BESIDE_VALUE[name]
        kind = schema.fields[place].dataType
        if not fits(kind):
            raise ConfigurationError(
                f"the column {name} must be {what}, not {kind.simpleString()}; rename it if it"
                " belongs to the payload"
            )
    if VALUE in names:
        places = [names.index(VALUE)]
        _refuse_the_rest(schema, {*message.values(), *places})
    else:
        places = [place for place in range(len(names)) if names[place] not in message]
    if not places:
        raise ConfigurationError("there is no column value, and none that a payload is made of")
    fields = [schema.fields[place] for place in places]
    for field in fields:
        converter(field.dataType, field.name)
    return PutColumns(
        queue=_one_queue(options, message),
        value=places[0] if VALUE in names else None,
        payload=StructType(fields),
        message={name: place for name, place in message.items() if name != "queue"}
        if options.queues
        else message,
        places=tuple(places),
    )


def _one_queue(options: Options, message: dict[str, int]) -> str | None:
    if not options.queues and "queue" in message:
        return None
    if not options.queues:
        raise ConfigurationError(
            "where do the rows go? name one queue in the option queue, or give them a column queue"
        )
    return check_queue_name(options.queue)


def _refuse_the_rest(schema: StructType, used: set[int]) -> None:
    """What would be lost in silence."""
    rest = [name for place, name in enumerate(schema.fieldNames()) if place not in used]
    if rest:
        raise ConfigurationError(
            f"the columns {', '.join(rest)} are neither the value nor known of a message; select"
            " what is to be written, or leave out value to make the payload of columns. Beside the"
            f" value a row may have {', '.join(BESIDE_VALUE)}"
        )
