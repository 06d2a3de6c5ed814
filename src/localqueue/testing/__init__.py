"""What users need to test their own stores and their own use of the queue.

``ManualClock`` needs nothing else. The contract suites are pytest classes: import them from
``localqueue.testing.store_contract``, in an environment that has pytest.
"""

from __future__ import annotations

from localqueue.testing.clock import ManualClock

__all__ = ["ManualClock"]
