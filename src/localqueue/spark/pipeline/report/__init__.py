"""What a lake tells about its queues: a page to look at, and a summary for the terminal.

``write_report(lake, path)`` writes one HTML file that needs nothing else: no server, no network, no
second file. No session of Spark is started.
"""

from __future__ import annotations

from localqueue.spark.pipeline.report.figures import Figures, figures_of
from localqueue.spark.pipeline.report.lines import summary
from localqueue.spark.pipeline.report.page import write_report
from localqueue.spark.pipeline.report.slo import Slo

__all__ = ["Figures", "Slo", "figures_of", "summary", "write_report"]
