"""Tables of your own on a lake: materialized views and streaming tables, defined in a file.

The file is written in the language of Spark's Declarative Pipelines, in Python or SQL.
``Views(lake, file).refresh()`` brings its tables up to date.
"""

from __future__ import annotations

from localqueue.spark.pipeline.views.views import Refreshed, Views

__all__ = ["Refreshed", "Views"]
