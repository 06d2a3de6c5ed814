"""Queues as Spark sources and sinks, handlers on Spark executors, and the journal as tables.

``session()`` makes a Spark session that knows ``format("localqueue")``; ``register(spark)`` makes a
session of yours know it. ``Pipeline`` keeps the tables of a lake up to date, with ``Compacted`` the
latest value of each key too, ``Views`` those that a file of yours defines; ``replay`` puts messages
of a lake back, ``StuckAlerts`` tells of messages that are stuck, ``groups`` of who reads. Needs
``pip install "./localqueue[spark]"`` and Java 17 or newer; nothing of either is loaded before one
of these names is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from localqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from localqueue.spark.pipeline.alerts.stuck_alerts import StuckAlerts
    from localqueue.spark.pipeline.compacted.topic import Compacted
    from localqueue.spark.pipeline.groups import groups, remove_group
    from localqueue.spark.pipeline.pipeline import Pipeline
    from localqueue.spark.pipeline.replaying.replay import replay
    from localqueue.spark.pipeline.views.views import Views
    from localqueue.spark.sessions.registration import register
    from localqueue.spark.sessions.spark_session import session
    from localqueue.spark.workers.worker import SparkWorker, run_on_spark

__all__ = [
    "Compacted",
    "Pipeline",
    "SparkWorker",
    "StuckAlerts",
    "Views",
    "groups",
    "register",
    "remove_group",
    "replay",
    "run_on_spark",
    "session",
]

_HOMES = {
    "Compacted": "pipeline.compacted.topic",
    "Pipeline": "pipeline.pipeline",
    "SparkWorker": "workers.worker",
    "StuckAlerts": "pipeline.alerts.stuck_alerts",
    "Views": "pipeline.views.views",
    "groups": "pipeline.groups",
    "register": "sessions.registration",
    "remove_group": "pipeline.groups",
    "replay": "pipeline.replaying.replay",
    "run_on_spark": "workers.worker",
    "session": "sessions.spark_session",
}

if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            home = import_module(f"{__name__}.{_HOMES[name]}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] == "localqueue":
                raise
            raise ConfigurationError(
                f'{error.name} is not installed; write pip install "./localqueue[spark]"'
            ) from error
        return getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
