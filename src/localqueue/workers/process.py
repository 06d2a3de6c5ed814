"""Handlers in processes: one beside each runner, replaced when it dies or has to be ended."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from localqueue.errors import (
    ConfigurationError,
    HandlerDied,
    InvalidMessageType,
    InvalidResult,
    LocalQueueError,
)
from localqueue.message import QueueMessage
from localqueue.telemetry.carried import carried_trace
from localqueue.workers.child import GRACE, Main
from localqueue.workers.child_process import ChildProcess
from localqueue.workers.context import Slot
from localqueue.workers.handler_reference import HandlerReference, reference_to
from localqueue.workers.parcel import pack, unpack, unpack_error

log = logging.getLogger("localqueue.workers")

MOST_STARTS = 10
"""How often in a row a process may die before it is ready, or before it got its message."""
PAUSE = 0.05
"""After the first such death; after the next ones it is longer."""


class ProcessHand:
    """Calls the handler in a process of its own, which is started when it is needed."""

    def __init__(
        self,
        slot: Slot,
        reference: HandlerReference,
        has_to_end: Callable[[], bool],
        most_calls: int | None,
    ) -> None:
        self._slot = slot
        self._reference = reference
        self._has_to_end = has_to_end
        self._most_calls = most_calls
        self._child: ChildProcess | None = None
        self._changing = threading.Lock()
        self._calling: QueueMessage[Any] | None = None
        self._reason: LocalQueueError | None = None
        """Why the call that runs was interrupted."""
        self.closed = threading.Event()

    def prepare(self) -> bool:
        child = self._child
        if child is not None:
            if child.calls != self._most_calls and not child.is_gone():
                return True
            self._replace()
        return not self._has_to_end() and self._start()

    def call(self, message: QueueMessage[Any]) -> Any:
        for _ in range(MOST_STARTS):
            child = self._child
            assert child is not None, "prepare() comes first"
            said, reason = self._ask(child, message)
            if reason is not None:
                self._replace()
                if said is None:
                    raise reason
            if said is not None:
                return self._taken(*said)
            self._child = None
            how = child.how_it_ended()
            # One that died before it got the message died of something else.
            if child.has_begun() or not self.prepare():
                break
        raise HandlerDied(f"{how} before the handler ended")

    def interrupt(self, error: LocalQueueError) -> None:
        with self._changing:
            message, child = self._calling, self._child
            told = None if message is None else self._slot.told(message)
            # A reason to end the call before this one comes too late.
            if child is None or told is None or told.reason is not error:
                return
            self._reason = error
            child.give_up(child.calls, error)

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()
        self.closed.set()

    def kill(self) -> None:
        """From any thread: what runs does not go on."""
        child = self._child
        if child is not None:
            child.kill()

    def _ask(
        self, child: ChildProcess, message: QueueMessage[Any]
    ) -> tuple[tuple[Any, ...] | None, LocalQueueError | None]:
        """Its answer, None when it died; and the reason why the call was interrupted, if it was."""
        parcel = _packed(child.calls + 1, message)
        with self._changing:
            told = self._slot.told(message)
            # From here on interrupt() does what is to be done.
            if told is not None:
                told.check()
            child.calls += 1
            self._calling, self._reason = message, None
        try:
            said = self._exchange(child, message, parcel)
        except BaseException:
            # Nobody knows what the process does now, so it does not go on.
            self._forget(child)
            raise
        with self._changing:
            self._calling = None
            return said, self._reason

    def _taken(self, kind: str, packed: Any, is_spent: bool) -> Any:
        if is_spent:
            self._replace()
        if kind == "raised":
            raise unpack_error(packed)
        return _unpacked(packed)

    def _exchange(
        self, child: ChildProcess, message: QueueMessage[Any], parcel: bytes
    ) -> tuple[Any, ...] | None:
        """Its answer; None when it died."""
        try:
            child.send(parcel)
        except ConnectionError:
            return None
        while (said := child.answer()) is not None and said[0] == "progress":
            # A thread that an earlier handler left behind may still report.
            if said[1] == message.receipt:
                self._slot.report(self._slot.current_of(message), said[2])
        return said

    def _start(self) -> bool:
        for attempt in range(1, MOST_STARTS + 1):
            try:
                return self._start_one()
            except HandlerDied as error:
                if attempt == MOST_STARTS:
                    raise
                log.warning("%s; trying again", error)
            # Where there is no memory for it there may be some in a moment.
            time.sleep(PAUSE * attempt)
            if self._has_to_end():
                break
        return False

    def _start_one(self) -> bool:
        try:
            child = ChildProcess(self._reference)
        except OSError as error:
            raise HandlerDied(f"no process can be started for handlers: {error}") from error
        try:
            if child.is_ready(self._has_to_end):
                self._child = child
                return True
        except HandlerDied:
            raise
        except BaseException:
            child.end_now()
            raise
        child.end_now()
        return False

    def _replace(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _forget(self, child: ChildProcess) -> None:
        with self._changing:
            self._calling = self._child = None
        child.end_now()


class ProcessHands:
    """Makes the hands of a worker; after ``close`` none of their processes is left."""

    def __init__(
        self,
        reference: HandlerReference,
        has_to_end: Callable[[], bool],
        most_calls: int | None = None,
    ) -> None:
        self._reference = reference
        self._has_to_end = has_to_end
        self._most_calls = most_calls
        self._hands: list[ProcessHand] = []

    def __call__(self, slot: Slot) -> ProcessHand:
        hand = ProcessHand(slot, self._reference, self._has_to_end, self._most_calls)
        self._hands.append(hand)
        return hand

    def close(self) -> None:
        """Wait for the runners to close their hands, which they do when their calls have ended."""
        deadline = time.monotonic() + 2 * GRACE
        for hand in self._hands:
            if not hand.closed.wait(max(0.0, deadline - time.monotonic())):
                hand.kill()
                hand.closed.wait(GRACE)


def check_process_handler(handler: Callable[[Any], Any]) -> HandlerReference:
    """What another process is told about a handler; ConfigurationError if there can be none."""
    if os.name != "posix" or not sys.executable:
        raise ConfigurationError('kind="process" needs Linux, macOS or another POSIX system')
    if Main.importing:
        raise ConfigurationError(
            "this process imports the script of a worker to run its handlers, and the script makes"
            ' a worker again: put that below if __name__ == "__main__":'
        )
    return reference_to(handler)


def _packed(number: int, message: QueueMessage[Any]) -> bytes:
    try:
        return pack((number, vars(message), carried_trace()))
    except Exception as error:
        raise InvalidMessageType(
            f"the value cannot be sent to the process of the handler: {error}"
        ) from error


def _unpacked(result: bytes) -> Any:
    try:
        return unpack(result)
    except Exception as error:
        raise InvalidResult(
            f"what the handler returned cannot be read by the worker: {error}; return plain values"
        ) from error
