"""Alerts about messages that are stuck: ``StuckAlerts`` follows a journal and tells of them."""

from __future__ import annotations

from localqueue.spark.pipeline.alerts.stuck_alerts import AlertBatch, StuckAlerts

__all__ = ["AlertBatch", "StuckAlerts"]
