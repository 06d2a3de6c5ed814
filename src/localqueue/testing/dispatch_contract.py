"""The dispatch contract as a pytest class, so that others can prove their own dispatchers.

    class TestMyDispatcher(DispatchContract):
        def make(self, handlers):
            return MyDispatcher(handlers)

Handlers get the stored message. Where they run is the dispatcher's own matter, so every test waits
for them, at most ``patience`` seconds. A dispatcher that does not work under leases
(``runs_under_lease``) calls them with a message that they acknowledge themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from localqueue.errors import LocalQueueError
from localqueue.message import QueueMessage
from localqueue.policies.resolved import trait
from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore

Message = QueueMessage[Any]
Handler = Callable[[Message], object]


class Diary:
    """What the handlers of a test saw, from whatever thread."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, Any]] = []
        self._changed = threading.Condition()

    def handler(self, name: str, queue: PersistentQueue[Any] | None = None) -> Handler:
        """One that writes its name and the value, and acknowledges where it was given a queue."""

        def handle(message: Message) -> None:
            if queue is not None and message.leased_until is None:
                queue.ack(message)
            with self._changed:
                self._seen.append((name, message.value))
                self._changed.notify_all()

        return handle

    def seen(self, count: int, patience: float) -> list[tuple[str, Any]]:
        """What was written, as soon as it is so much."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._seen) >= count, patience)
            return list(self._seen)


class DispatchContract:
    """Every dispatcher keeps these."""

    patience = 10.0

    def make(self, handlers: Sequence[Handler]) -> Any:
        """A new dispatcher with these handlers."""
        raise NotImplementedError

    @pytest.fixture
    def diary(self) -> Diary:
        return Diary()

    @pytest.fixture
    def store(self) -> Iterator[MemoryQueueStore]:
        store = MemoryQueueStore()
        yield store
        store.close()

    def queue(self, store: MemoryQueueStore, dispatcher: Any) -> PersistentQueue[Any]:
        return PersistentQueue("jobs", store=store, dispatch_policy=dispatcher)

    # --- what is put is handled -----------------------------------------------------------------
    def test_every_handler_gets_what_is_put_in_order(
        self, store: MemoryQueueStore, diary: Diary
    ) -> None:
        plain: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
        handlers = [diary.handler("first"), diary.handler("second", plain)]

        with self.make(handlers) as dispatcher:
            self.queue(store, dispatcher).put("job")
            seen = diary.seen(2, self.patience)

        assert seen == [("first", "job"), ("second", "job")]

    def test_a_handler_finds_its_message_in_the_store(self, store: MemoryQueueStore) -> None:
        found: list[Any] = []
        done = threading.Event()

        def handle(message: Message) -> None:
            found.append(queue.inspect(message.id))
            done.set()

        with self.make([handle]) as dispatcher:
            queue = self.queue(store, dispatcher)
            put = queue.put("job")
            assert done.wait(self.patience)

        assert [message and message.id for message in found] == [put.id]

    def test_what_was_handled_is_not_handled_again(
        self, store: MemoryQueueStore, diary: Diary
    ) -> None:
        plain: PersistentQueue[Any] = PersistentQueue("jobs", store=store)

        with self.make([diary.handler("only", plain)]) as dispatcher:
            queue = self.queue(store, dispatcher)
            for number in range(5):
                queue.put(number)
            seen = diary.seen(5, self.patience)

        assert sorted(value for _, value in seen) == [0, 1, 2, 3, 4]
        assert plain.stats().total == 0

    def test_a_handler_that_raises_loses_no_message(self, store: MemoryQueueStore) -> None:
        tried = threading.Event()

        def fail(message: Message) -> None:
            tried.set()
            raise LookupError("no")

        with self.make([fail]) as dispatcher:
            queue = self.queue(store, dispatcher)
            try:
                queue.put("job")
            except LookupError:
                assert not trait(dispatcher, "runs_under_lease", False)
            assert tried.wait(self.patience)

        assert queue.stats().total == 1

    # --- what waited ----------------------------------------------------------------------------
    def test_what_waited_before_is_worked_off(self, store: MemoryQueueStore, diary: Diary) -> None:
        waiting: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
        waiting.put_many([1, 2, 3])

        with self.make([diary.handler("only")]) as dispatcher:
            queue = self.queue(store, dispatcher)
            first, rest, none = [queue.dispatch_pending(limit) for limit in (2, None, None)]

        assert (first, rest, none) == (2, 1, 0)
        assert sorted(value for _, value in diary.seen(3, 0)) == [1, 2, 3]
        assert waiting.stats().total == 0

    def test_what_is_not_due_is_not_waited_for(self, store: MemoryQueueStore, diary: Diary) -> None:
        waiting: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
        waiting.put("later", delay=3_600)

        with self.make([diary.handler("only")]) as dispatcher:
            done = self.queue(store, dispatcher).dispatch_pending()

        assert done == 0
        assert diary.seen(0, 0) == []

    # --- the end --------------------------------------------------------------------------------
    def test_a_closed_dispatcher_refuses_and_the_message_stays(
        self, store: MemoryQueueStore, diary: Diary
    ) -> None:
        with self.make([diary.handler("only")]) as dispatcher:
            queue = self.queue(store, dispatcher)

        with pytest.raises(LocalQueueError, match="is stored"):
            queue.put("job")

        assert dispatcher.closed
        assert [message.value for message in queue.peek()] == ["job"]
        assert diary.seen(0, 0) == []

    def test_closing_waits_for_a_handler_that_runs(self, store: MemoryQueueStore) -> None:
        inside, finish = threading.Event(), threading.Event()
        ended: list[str] = []

        def handle(message: Message) -> None:
            inside.set()
            finish.wait(self.patience)
            ended.append(message.id)

        dispatcher = self.make([handle])
        queue = self.queue(store, dispatcher)
        producer = threading.Thread(target=queue.put, args=("job",))
        producer.start()
        assert inside.wait(self.patience)

        in_time = dispatcher.close(timeout=0.01)
        finish.set()
        producer.join()

        assert in_time is False
        assert dispatcher.close(timeout=self.patience) is True
        assert len(ended) == 1

    def test_a_handler_may_close_its_own_dispatcher(self, store: MemoryQueueStore) -> None:
        closed: list[bool] = []
        done = threading.Event()

        def handle(message: Message) -> None:
            closed.append(dispatcher.close())
            done.set()

        dispatcher = self.make([handle])
        self.queue(store, dispatcher).put("job")

        assert done.wait(self.patience)
        assert closed == [True]
        assert dispatcher.closed

    def test_closing_twice_is_closing_once(self, diary: Diary) -> None:
        dispatcher = self.make([diary.handler("only")])

        assert [dispatcher.close(), dispatcher.close()] == [True, True]

    # --- what it says of itself -----------------------------------------------------------------
    def test_it_describes_itself(self, diary: Diary) -> None:
        handlers = [diary.handler("first"), diary.handler("second")]

        with self.make(handlers) as dispatcher:
            described = dispatcher.as_dict()

        assert described["dispatches_on_put"] is dispatcher.dispatches_on_put is True
        assert described["handler_count"] == dispatcher.handler_count == 2
        assert described["type"]

    @pytest.mark.parametrize("handlers", [[], None, ["print"]], ids=["none", "nothing", "text"])
    def test_what_is_no_list_of_functions_is_refused(self, handlers: Any) -> None:
        with pytest.raises((ValueError, TypeError), match="handlers"):
            self.make(handlers)
