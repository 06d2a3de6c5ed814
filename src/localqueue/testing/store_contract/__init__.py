"""The store contract as pytest classes, so that others can prove their own stores.

    class TestMyStore(QueueStoreContract):
        @pytest.fixture
        def store(self):
            return MyStore()

A store that survives being closed also overrides ``reopen(store)``, and one of which a second can
be made overrides ``another()``; without them the tests that need it are skipped. A store with only
the simple verbs is wrapped in ``localqueue.stores.minimal.MinimalStore`` and takes
``SimpleStoreContract``. Time is what the tests pass as ``now``; nothing sleeps.
"""

from __future__ import annotations

import pytest

# Before they are imported: a failing assert then shows its values in users' test runs too.
for _part in (
    "phrases",
    "simple",
    "delivery",
    "ordering",
    "ordering_keys",
    "expiry",
    "liveness",
    "capacity",
    "deduplication",
    "fanout",
    "settlement",
    "records",
    "counting",
    "journal",
    "settings",
    "waiting",
    "whole",
):
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from localqueue.testing.store_contract.simple import SimpleStoreContract  # noqa: E402
from localqueue.testing.store_contract.whole import QueueStoreContract  # noqa: E402

__all__ = ["QueueStoreContract", "SimpleStoreContract"]
