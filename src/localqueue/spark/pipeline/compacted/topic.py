"""What a compacted topic is: which queue, where its messages have their key, and the table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from localqueue.checks import check_queue_name
from localqueue.errors import ConfigurationError, StoreBusy
from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.report.definitions import RESERVED
from localqueue.spark.pipeline.table import Table

PROPERTY = "localqueue.compacted"
"""What the table was made for, kept with it."""
TRIES = 20

_SCHEMA = columns(
    ("key", pa.string()),
    ("value", pa.string()),
    ("message_id", pa.string()),
    ("at", MOMENT),
    ("store", pa.string()),
    ("seq", pa.int64()),
    # A checksum of the key. Files follow it, so that few of them have to be written anew.
    ("slot", pa.int64()),
)


@dataclass(frozen=True, slots=True)
class Compacted:
    """The latest value of each key, as a table of the lake.

    ``key`` and ``value`` say where messages have theirs: the name of a field, ``sku``, or names
    inside each other, ``customer.id``. Without ``value`` the whole payload is the value. A message
    whose value is null deletes its key: a tombstone. One without the field of its key or value is
    not looked at. ``name`` is the table's; ``latest_`` and the queue's unless given.
    """

    queue: str
    key: str
    value: str | None = None
    name: str = field(default="")

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        for path in (self.key, self.value):
            if path is not None and "" in path.split("."):
                raise ConfigurationError(
                    f"compacted: {path!r} is no field; write sku, or customer.id for one inside"
                )
        if not self.name:
            object.__setattr__(self, "name", "latest_" + re.sub(r"\W", "_", self.queue))
        if not re.fullmatch(r"[A-Za-z]\w*", self.name, re.ASCII) or self.name in RESERVED:
            raise ConfigurationError(f"compacted: {self.name!r} cannot name a table of its own")

    @classmethod
    def parse(cls, text: str) -> Compacted:
        """``QUEUE=KEY`` or ``QUEUE=KEY:VALUE``, as the command line has it."""
        queue, is_pair, path = text.partition("=")
        key, _, value = path.partition(":")
        if not is_pair or not queue or not key:
            raise ConfigurationError(f"compacted: {text!r} is not QUEUE=KEY or QUEUE=KEY:VALUE")
        return cls(queue, key, value or None)

    @property
    def definition(self) -> Definition:
        return Definition(
            name=self.name,
            description=f"The latest value of each key of {self.queue}.",
            schema=_SCHEMA,
            statistics=("slot", "at"),
            moment="at",
        )

    def check(self, table: Table) -> None:
        """ConfigurationError when the table was made for something else."""
        found = table.properties.get(PROPERTY)
        if found != self._meaning and (found is not None or table.files()):
            raise ConfigurationError(
                f"the table {self.name} of the lake is {found or 'no compacted topic'}, and this"
                f" pipeline would make it {self._meaning}; give it another name, or delete it"
            )

    def claim(self, table: Table) -> None:
        """The table is for this from now on; raises what ``check`` raises."""
        for _ in range(TRIES):
            self.check(table)
            if table.properties.get(PROPERTY) == self._meaning:
                return
            if table.set_property(PROPERTY, self._meaning):
                return
        raise StoreBusy(f"the table {self.name} is changed by others all the time; run again")

    @property
    def _meaning(self) -> str:
        return json.dumps({"queue": self.queue, "key": self.key, "value": self.value})


def checked(topics: Iterable[Compacted], queues: Sequence[str] | None) -> tuple[Compacted, ...]:
    """ConfigurationError for two of one name, or for a queue that does not come to the lake."""
    found = tuple(topics)
    for topic in found:
        if [each.name for each in found].count(topic.name) > 1:
            raise ConfigurationError(f"compacted: two tables are called {topic.name!r}; name one")
        if queues and topic.queue not in queues:
            raise ConfigurationError(
                f"compacted: this pipeline does not bring {topic.queue!r}, but {', '.join(queues)}"
            )
    return found
