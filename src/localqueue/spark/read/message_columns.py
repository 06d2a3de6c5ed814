"""The columns of a message, made of the cells of its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.read.arrow_columns import (
    HEADERS,
    TIMESTAMP,
    header_maps,
    json_texts,
    nothing,
    public_ids,
    repeated,
    timestamps,
    words,
)
from localqueue.spark.read.cells import Cells
from localqueue.spark.read.filters import (
    Column,
    Identifier,
    Plain,
    Word,
    micros,
    number,
    text,
    time,
)
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.states import DEAD, DELAYED, HELD, INFLIGHT, PUBLIC_STATE, READY

STATES = tuple(map(str, PUBLIC_STATE))

NEEDS: dict[str, tuple[str, ...]] = {
    "id": ("origin", "alias"),
    "queue": ("queue",),
    "state": ("state",),
    "value": ("value", "elsewhere", "codec", "origin", "alias"),
    "headers": ("headers",),
    "codec": ("codec",),
    "priority": ("rank",),
    "ordering_key": ("key",),
    "dedupe_key": ("dedupe_key",),
    "attempts": ("attempts",),
    "failures": ("failures",),
    "crashes": ("crashes",),
    "created_at": ("created_at",),
    "available_at": ("state", "pos", "due_at", "created_at"),
    "expires_at": ("state", "expires_at"),
    "leased_until": ("state", "due_at"),
    "leased_by": ("state", "worker"),
    "failed_at": ("failed_at",),
    "last_error": ("error",),
    "body": ("value", "elsewhere"),
}
"""The cells that a column is made of, beside the row's number."""


def message_id(cells: Cells) -> pa.Array:
    """An id that was brought along, or the number of the publication, or of the row."""
    number, origin, alias = cells["id"], cells.get("origin"), cells.get("alias")
    ids = public_ids(number if origin is None else pc.coalesce(origin, number), cells.identity)
    return ids if alias is None else pc.coalesce(alias, ids)


def body(cells: Cells) -> pa.Array:
    value, elsewhere = cells["value"], cells.get("elsewhere")
    return value if elsewhere is None else pc.coalesce(value, elsewhere)


def value(cells: Cells) -> pa.Array:
    """The JSON text; null for other codecs."""
    bodies, codec = body(cells), cells.get("codec")
    strict = cells.strict
    if codec is not None:
        # Empty: of a message that is gone. Then what can be read as text is shown.
        is_json = pc.is_in(pc.fill_null(codec, "json"), value_set=pa.array(["json", ""]))
        bodies = pc.if_else(is_json, bodies, None)
        strict = strict and not pc.any(pc.equal(codec, "")).as_py()
    return json_texts(bodies, lambda: message_id(cells), strict=strict)


def _state(cells: Cells) -> pa.Array:
    states = cells.get("state")
    return repeated(STATES[READY], cells.rows) if states is None else words(states, STATES)


def _codec(cells: Cells) -> pa.Array:
    codec = cells.get("codec")
    if codec is None:
        return repeated("json", cells.rows)
    known = pc.fill_null(codec, "json")
    return pc.if_else(pc.equal(known, ""), None, known)


def _headers(cells: Cells) -> pa.Array:
    encoded = cells.get("headers")
    return nothing(HEADERS, cells.rows) if encoded is None else header_maps(encoded)


def _priority(cells: Cells) -> pa.Array:
    rank = cells.count("rank")
    return rank if cells.get("rank") is None else pc.negate(rank)


def _available_at(cells: Cells) -> pa.Array:
    pos, states, due_at = cells.get("pos"), cells.get("state"), cells.get("due_at")
    moment = cells["created_at"] if pos is None else pos
    if states is not None and due_at is not None:
        waits = pc.is_in(states, value_set=pa.array([DELAYED, HELD]))
        moment = pc.coalesce(pc.if_else(waits, due_at, None), moment)
    return timestamps(moment)


def _expires_at(cells: Cells) -> pa.Array:
    return _where(cells, "expires_at", pc.not_equal, DEAD)


def _leased_until(cells: Cells) -> pa.Array:
    return _where(cells, "due_at", pc.equal, INFLIGHT)


def _where(cells: Cells, name: str, compare: Callable[..., pa.Array], state: int) -> pa.Array:
    """A time that a message has in some states only."""
    moment, states = cells.get(name), cells.get("state")
    if moment is None:
        return nothing(TIMESTAMP, cells.rows)
    if states is not None:
        moment = pc.if_else(compare(states, state), moment, None)
    return timestamps(moment)


def _leased_by(cells: Cells) -> pa.Array:
    worker, states = cells.get("worker"), cells.get("state")
    if worker is None or states is None:
        return nothing(pa.string(), cells.rows)
    return pc.if_else(pc.equal(states, INFLIGHT), worker, None)


def _failed_at(cells: Cells) -> pa.Array:
    failed_at = cells.get("failed_at")
    return nothing(TIMESTAMP, cells.rows) if failed_at is None else timestamps(failed_at)


COLUMNS: dict[str, Callable[[Cells], pa.Array]] = {
    "id": message_id,
    "queue": Cells.queue_names,
    "state": _state,
    "value": value,
    "headers": _headers,
    "codec": _codec,
    "priority": _priority,
    "ordering_key": lambda cells: cells.of("key", pa.string()),
    "dedupe_key": lambda cells: cells.of("dedupe_key", pa.string()),
    "attempts": lambda cells: cells.count("attempts"),
    "failures": lambda cells: cells.count("failures"),
    "crashes": lambda cells: cells.count("crashes"),
    "created_at": lambda cells: timestamps(cells["created_at"]),
    "available_at": _available_at,
    "expires_at": _expires_at,
    "leased_until": _leased_until,
    "leased_by": _leased_by,
    "failed_at": _failed_at,
    "last_error": lambda cells: cells.of("error", pa.string()),
    "body": body,
}


def filterable(identity: Identity, queues: Mapping[int, str]) -> dict[str, Column]:
    """The columns by which the store can choose."""

    def has_id(wanted: Sequence[str]) -> str:
        seqs = ", ".join(str(seq) for one in wanted if (seq := identity.seq(one)) is not None)
        texts = ", ".join(filter(None, map(text, wanted)))
        # Each part has its index. Null-safe as a whole is not needed: it is never negated.
        return (
            f"({{id}} IN ({seqs}) AND {{origin}} IS NULL AND {{alias}} IS NULL"
            f" OR {{origin}} IN ({seqs}) AND {{alias}} IS NULL OR {{alias}} IN ({texts}))"
        )

    return {
        "id": Identifier(has_id),
        "queue": Word("{queue}", queues),
        "state": Word("{state}", dict(enumerate(STATES))),
        "codec": Plain("coalesce({codec}, 'json')", text, is_text=True),
        "priority": Plain("(-{rank})", number),
        "ordering_key": Plain("{key}", text, is_text=True),
        "dedupe_key": Plain("{dedupe_key}", text, is_text=True),
        "attempts": Plain("{attempts}", number),
        "failures": Plain("{failures}", number),
        "crashes": Plain("{crashes}", number),
        "leased_by": Plain(f"iif({{state}} = {INFLIGHT}, {{worker}}, NULL)", text, is_text=True),
        "created_at": Plain(micros("{created_at}"), time),
        "available_at": Plain(
            micros(f"coalesce(iif({{state}} IN ({DELAYED}, {HELD}), {{due_at}}, NULL), {{pos}})"),
            time,
        ),
        "expires_at": Plain(micros(f"iif({{state}} = {DEAD}, NULL, {{expires_at}})"), time),
        "leased_until": Plain(micros(f"iif({{state}} = {INFLIGHT}, {{due_at}}, NULL)"), time),
        "failed_at": Plain(micros("{failed_at}"), time),
    }
