"""Every kind of worker keeps the contract."""

from __future__ import annotations

from tests.unit.workers.acts import act, act_async
from tests.unit.workers.worker_contract import WorkerContract


class TestThreadWorker(WorkerContract):
    kind = "thread"
    handler = act


class TestProcessWorker(WorkerContract):
    kind = "process"
    handler = act


class TestAsyncioWorker(WorkerContract):
    kind = "asyncio"
    handler = act_async
