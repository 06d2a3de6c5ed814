"""What users need to test their own stores and their own use of the queue.

``ManualClock`` and ``check_history`` need nothing else. The contract suites are pytest classes:
import them from ``localqueue.testing.store_contract``, in an environment that has pytest.
"""

from __future__ import annotations

from localqueue.testing.clock import ManualClock
from localqueue.testing.history import Rule, Violation, check_history

__all__ = ["ManualClock", "Rule", "Violation", "check_history"]
