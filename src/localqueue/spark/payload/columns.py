"""Payloads as columns: JSON, fitted to the schema that the option ``payloadSchema`` gives.

A value fits or it does not; nothing is converted on the way, except whole numbers for fractional
ones and ISO texts for dates and times. A field that is missing is null, one that the schema does
not have is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from localqueue.codec import JSON_CODEC
from localqueue.errors import DamagedMessage, PayloadMismatch
from localqueue.spark.options import Mode
from localqueue.spark.payload.types import Misfit, fit, fits_as_it_is, named

CORRUPT = "_corrupt_record"
"""The field that has the text of a payload that does not fit, in the mode PERMISSIVE."""

_MISSING: dict[str, Any] = {}


class Payload:
    """Makes the columns of a schema.

    FAILFAST raises PayloadMismatch for the first field that does not fit. PERMISSIVE makes that
    field null, and still raises when the schema says that it is not.
    """

    def __init__(self, schema: StructType, mode: Mode) -> None:
        self._mode = mode
        self._fields = schema.fields
        self._has_corrupt = any(
            field.name == CORRUPT and isinstance(field.dataType, StringType)
            for field in schema.fields
        )

    def columns(self, texts: pa.Array, ids: Callable[[], pa.Array]) -> list[pa.Array]:
        """A column for each field. ``ids`` gives the ids of the messages, if one is to be named.

        Where there is no text the fields are null.
        """
        work = _Work(texts, ids, self._mode)
        columns = {
            field.name: work.column(field)
            for field in self._fields
            if not (self._has_corrupt and field.name == CORRUPT)
        }
        if self._has_corrupt:
            columns[CORRUPT] = work.corrupt()
        return [columns[field.name] for field in self._fields]


class _Work:
    """The payloads of one batch."""

    def __init__(self, texts: pa.Array, ids: Callable[[], pa.Array], mode: Mode) -> None:
        self._texts = texts
        self._ids = ids
        self._mode = mode
        self._corrupt: set[int] = set()
        self._objects = self._decoded(texts.to_pylist())

    def column(self, field: StructField) -> pa.Array:
        kind = to_arrow_type(field.dataType, timezone="UTC")
        values = [payload.get(field.name) for payload in self._objects]
        if fits_as_it_is(values, field):
            try:
                return pa.array(values, kind)
            except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError):
                pass  # a number that is too large for its type: found below
        return pa.array([self._fitted(at, value, field) for at, value in enumerate(values)], kind)

    def corrupt(self) -> pa.Array:
        texts = self._texts.to_pylist()
        return pa.array(
            [text if at in self._corrupt else None for at, text in enumerate(texts)], pa.string()
        )

    def _fitted(self, at: int, value: Any, field: StructField) -> Any:
        try:
            # Without a payload there is nothing that could fit or not.
            return fit(value, field, "") if self._texts[at].is_valid else None
        except Misfit as misfit:
            if not field.nullable:
                raise self._mismatch(at, misfit) from None
            self._refuse(at, misfit)
            return None

    def _decoded(self, texts: Sequence[str | None]) -> list[dict[str, Any]]:
        try:
            found = JSON_CODEC.decode_many([b"{}" if t is None else t.encode() for t in texts])
        except DamagedMessage:
            found = [self._decoded_one(at, text) for at, text in enumerate(texts)]
        if set(map(type, found)) <= {dict}:
            return found
        return [self._object(at, value) for at, value in enumerate(found)]

    def _decoded_one(self, at: int, text: str | None) -> Any:
        try:
            return {} if text is None else json.loads(text)
        except ValueError:
            self._refuse(at, Misfit("it is not JSON"))
            return {}

    def _object(self, at: int, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(at, Misfit(f"it is {named(value)}, not an object"))
            return _MISSING
        return value

    def _refuse(self, at: int, misfit: Misfit) -> None:
        if self._mode == "FAILFAST":
            raise self._mismatch(at, misfit)
        self._corrupt.add(at)

    def _mismatch(self, at: int, misfit: Misfit) -> PayloadMismatch:
        return PayloadMismatch(
            f"the payload of {self._ids()[at]} does not fit payloadSchema: {misfit}; change the"
            " schema, or read with the option mode=PERMISSIVE, which makes it null"
        )
