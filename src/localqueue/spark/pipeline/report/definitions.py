"""The tables that pipelines make."""

from __future__ import annotations

from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.gaps import GAPS
from localqueue.spark.pipeline.quarantine import QUARANTINE
from localqueue.spark.pipeline.tables import GOLD, SILVER

DEFINITIONS: tuple[Definition, ...] = (
    EVENTS,
    *(step.definition for step in SILVER),
    *(step.definition for step in GOLD),
    QUARANTINE,
    GAPS,
)
"""In the order in which a batch comes to them."""
RESERVED = frozenset({*(definition.name for definition in DEFINITIONS), "hours", "days"})
"""Names that no table of a user's may have."""
