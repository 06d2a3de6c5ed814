"""Every dispatcher keeps the dispatch contract."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.register_assert_rewrite("localqueue.testing.dispatch_contract")

from localqueue import CallbackDispatcher, ThreadedDispatcher, WorkerPoolDispatcher  # noqa: E402
from localqueue.testing.dispatch_contract import DispatchContract, Handler  # noqa: E402


class TestCallbackDispatcher(DispatchContract):
    def make(self, handlers: Sequence[Handler]) -> CallbackDispatcher:
        return CallbackDispatcher(handlers)


class TestThreadedDispatcher(DispatchContract):
    def make(self, handlers: Sequence[Handler]) -> ThreadedDispatcher:
        return ThreadedDispatcher(handlers)


class TestWorkerPoolDispatcher(DispatchContract):
    def make(self, handlers: Sequence[Handler]) -> WorkerPoolDispatcher:
        return WorkerPoolDispatcher(handlers, workers=3)
