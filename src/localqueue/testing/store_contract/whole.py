"""Every part of the contract together."""

from __future__ import annotations

from localqueue.testing.store_contract.capacity import Capacity, Overflow
from localqueue.testing.store_contract.counting import Counting, DeadLetters, Purging
from localqueue.testing.store_contract.deduplication import (
    DedupeWindows,
    Deduplication,
    RequestIds,
)
from localqueue.testing.store_contract.delivery import (
    Batches,
    Cancellation,
    Closing,
    Extensions,
    Leases,
    Receipts,
)
from localqueue.testing.store_contract.expiry import CrashLimit, Expiry
from localqueue.testing.store_contract.fanout import (
    CopyFanOut,
    CursorFanOut,
    FanOut,
    HybridFanOut,
    LateSubscribers,
    Subscriptions,
)
from localqueue.testing.store_contract.journal import (
    JournalHistory,
    JournalKinds,
    JournalPayloads,
    JournalPositions,
    JournalReaders,
    JournalTrimming,
)
from localqueue.testing.store_contract.liveness import (
    Crashes,
    DeadWorkers,
    KeptLeases,
    LeasesByName,
    Prefetching,
)
from localqueue.testing.store_contract.ordering import Order, Priority
from localqueue.testing.store_contract.ordering_keys import OrderingKeys
from localqueue.testing.store_contract.records import (
    RecordExpiry,
    Records,
    RecordScans,
    RecordsWithPuts,
)
from localqueue.testing.store_contract.settings import Settings
from localqueue.testing.store_contract.settlement import SettleAndLease, Settlement
from localqueue.testing.store_contract.simple import SimpleStoreContract
from localqueue.testing.store_contract.waiting import Boots, Waiting


class QueueStoreContract(
    SimpleStoreContract,
    Batches,
    Leases,
    Extensions,
    Receipts,
    Cancellation,
    Closing,
    Order,
    Priority,
    OrderingKeys,
    Expiry,
    CrashLimit,
    Prefetching,
    KeptLeases,
    LeasesByName,
    DeadWorkers,
    Crashes,
    Capacity,
    Overflow,
    Deduplication,
    DedupeWindows,
    RequestIds,
    Subscriptions,
    FanOut,
    CopyFanOut,
    CursorFanOut,
    HybridFanOut,
    LateSubscribers,
    Settlement,
    SettleAndLease,
    Records,
    RecordsWithPuts,
    RecordExpiry,
    RecordScans,
    Counting,
    DeadLetters,
    Purging,
    JournalKinds,
    JournalPositions,
    JournalHistory,
    JournalPayloads,
    JournalTrimming,
    JournalReaders,
    Settings,
    Boots,
    Waiting,
):
    """What every store of the library does, and what a store of yours may be held to."""
