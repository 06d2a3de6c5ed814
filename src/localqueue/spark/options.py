"""The options of ``format("localqueue")``, checked once and then a value."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal, cast

from localqueue.errors import ConfigurationError
from localqueue.stores.masking import masked

Direction = Literal["reading", "writing"]
Content = Literal["messages", "dead_letters", "journal"]
Mode = Literal["FAILFAST", "PERMISSIVE"]
Offsets = Literal["earliest", "latest"] | dict[str, int | str]
"""Where to start or end: a word, or a position per shard, ``{"0": 1200}``.

The JSON of an offset that Spark shows may be given back as it is; its ``"store"`` is a text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for, with its types. It can be pickled; shown, its URL is masked."""

    url: str
    """The store; a SQLite path in it is absolute."""
    queues: tuple[str, ...] = ()
    """Option ``queue``, several separated by commas; none means all, where that makes sense."""
    content: Content = "messages"
    columns: tuple[str, ...] | None = None
    where: str | None = None
    payload_schema: str | None = None
    mode: Mode = "FAILFAST"
    starting_offsets: Offsets = "earliest"
    starting_timestamp: float | None = None
    """Seconds since 1970, as ``ending_timestamp``."""
    ending_offsets: Offsets = "latest"
    ending_timestamp: float | None = None
    max_rows_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    consumer_group: str | None = None
    lease: bool = False
    lease_timeout: float = 600.0
    sink_id: str | None = None
    batch_id: str | None = None
    staging_directory: str | None = None
    put_timeout: float = 300.0
    """How long a write waits for room in a full queue before it fails."""
    dedupe_window: float = 0.0
    """How long a row's dedupe key stays taken at least, from the put on."""
    checkpoint_location: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], direction: Direction | None = None) -> Options:
        """The options that Spark hands over, whose names have no case.

        ConfigurationError for a name that is unknown or only for the other direction, a value that
        means nothing, or no ``url``. No text of it shows a password, nor the value of an unknown
        option.
        """
        values: dict[str, Any] = {}
        for name, text in given.items():
            option = OPTIONS.get(name.lower())
            if option is None:
                raise ConfigurationError(_unknown(name))
            if direction and option.direction not in (None, direction):
                raise ConfigurationError(
                    f"option {option.name} is for {option.direction} only, and would do nothing"
                    " here; leave it out"
                )
            values[option.field] = option.value(text)
        if "url" not in values:
            raise ConfigurationError(
                'format("localqueue") needs the option url, such as sqlite:////data/jobs.sqlite3'
            )
        return cls(**values)

    @property
    def masked_url(self) -> str:
        return masked(self.url)

    @property
    def queue(self) -> str:
        """The one queue; ConfigurationError when none or several are named."""
        if len(self.queues) != 1:
            what = "several are given" if self.queues else "none is given"
            raise ConfigurationError(f"this needs one queue in the option queue; {what}")
        return self.queues[0]

    @property
    def is_cut(self) -> bool:
        """Whether a place to start or to end at was named."""
        return (
            self.starting_offsets != "earliest"
            or self.ending_offsets != "latest"
            or self.starting_timestamp is not None
            or self.ending_timestamp is not None
        )

    def __repr__(self) -> str:
        shown = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                shown.append(f"{field.name}={masked(value) if isinstance(value, str) else value!r}")
        return f"Options({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class _Option:
    """An option by the name that users write, the field it fills, and how its text is read."""

    name: str
    field: str
    read: Callable[[str], Any]
    direction: Direction | None = None
    """The only one that it is for."""

    def value(self, text: str) -> Any:
        try:
            return self.read(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"option {self.name}: {error}") from None


def _unknown(name: str) -> str:
    known = [option.name for option in OPTIONS.values()]
    lower = name.lower()
    if lower == "path":
        return "a queue has no path; leave load() and save() empty and name the store as url"
    meant = _ELSEWHERE.get(lower)
    if meant is None:
        near = get_close_matches(lower, OPTIONS, n=1, cutoff=0.6)
        meant = OPTIONS[near[0]].name if near else None
    hint = f"did you mean {meant}? " if meant else ""
    return f"unknown option {name!r}; {hint}known are {', '.join(known)}"


# --- how a text is read --------------------------------------------------------------------------
def _url(text: str) -> str:
    scheme, colon, rest = text.partition("://")
    if not colon:
        raise ConfigurationError(
            f"{masked(text)!r} is not the URL of a store; write sqlite:////data/jobs.sqlite3"
        )
    if scheme.lower() == "memory":
        raise ConfigurationError("a store in memory is seen by its own process only; use a file")
    if scheme.lower() == "sqlite" and not rest.startswith("//"):
        raise ConfigurationError(
            f"{masked(text)!r} has a relative path, and Spark's processes run in folders of their"
            " own; write four slashes and an absolute path, sqlite:////data/jobs.sqlite3"
        )
    return text


def _text(text: str) -> str:
    if not text.strip():
        raise ConfigurationError("it is empty")
    return text.strip()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if "" in names:
        raise ConfigurationError(f"a name is missing in {text!r}; write name or name,name")
    if len(set(names)) < len(names):
        raise ConfigurationError(f"a name is there twice in {text!r}")
    return names


def _one_of(*words: str, folded: Callable[[str], str] = str.lower) -> Callable[[str], str]:
    def read(text: str) -> str:
        word = folded(text.strip())
        if word not in words:
            raise ConfigurationError(f"{text!r} is not one of {', '.join(words)}")
        return word

    return read


def _yes_or_no(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigurationError(f"{text!r} is not a whole number from 1 on")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigurationError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _moment(text: str) -> float:
    try:
        return int(text) / 1000
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is neither milliseconds since 1970 nor a time such as 2026-01-31T08:00:00Z"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _offsets(text: str) -> Offsets:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return cast("Literal['earliest', 'latest']", word)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        found = {name: position for name, position in found.items() if name not in _NOTES}
    if not isinstance(found, dict) or not all(map(_is_position, found.items())) or not found:
        raise ConfigurationError(
            f"{text!r} is neither earliest nor latest nor a position per shard such as"
            ' {"0": 1200}'
        )
    return found


_NOTES = ("began", "trimmed", "lag")
"""What an offset in a checkpoint or in a query's progress may have beside its position."""


def _is_position(item: tuple[str, object]) -> bool:
    shard, position = item
    if shard == "store":
        return isinstance(position, str)
    return shard.isdecimal() and type(position) is int and position >= 0


OPTIONS: dict[str, _Option] = {
    option.name.lower(): option
    for option in (
        _Option("url", "url", _url),
        _Option("queue", "queues", _names),
        _Option("content", "content", _one_of("messages", "dead_letters", "journal"), "reading"),
        _Option("columns", "columns", _names, "reading"),
        _Option("where", "where", _text, "reading"),
        _Option("payloadSchema", "payload_schema", _text, "reading"),
        _Option("mode", "mode", _one_of("FAILFAST", "PERMISSIVE", folded=str.upper), "reading"),
        _Option("startingOffsets", "starting_offsets", _offsets, "reading"),
        _Option("startingTimestamp", "starting_timestamp", _moment, "reading"),
        _Option("endingOffsets", "ending_offsets", _offsets, "reading"),
        _Option("endingTimestamp", "ending_timestamp", _moment, "reading"),
        _Option("maxRowsPerTrigger", "max_rows_per_trigger", _count, "reading"),
        _Option("minPartitions", "min_partitions", _count, "reading"),
        _Option("failOnDataLoss", "fail_on_data_loss", _yes_or_no, "reading"),
        _Option("consumerGroup", "consumer_group", _text, "reading"),
        _Option("lease", "lease", _yes_or_no, "reading"),
        _Option("leaseTimeout", "lease_timeout", _seconds, "reading"),
        _Option("sinkId", "sink_id", _text, "writing"),
        _Option("batchId", "batch_id", _text, "writing"),
        _Option("stagingDirectory", "staging_directory", _text, "writing"),
        _Option("putTimeout", "put_timeout", _seconds, "writing"),
        _Option("dedupeWindow", "dedupe_window", _seconds, "writing"),
        _Option("checkpointLocation", "checkpoint_location", _text, "writing"),
    )
}

# What the same thing is called in other sources.
_ELSEWHERE = {
    "dsn": "url",
    "dbtable": "queue",
    "filter": "where",
    "pushdownpredicate": "where",
    "query": "where",
    "subscribe": "queue",
    "topic": "queue",
    "queues": "queue",
    "kafka.group.id": "consumerGroup",
    "groupidprefix": "consumerGroup",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "schema": "payloadSchema",
}
