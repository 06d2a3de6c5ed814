"""The inside of a process that runs handlers for a worker, one at a time, in its main thread."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from localqueue.errors import InvalidResult, LocalQueueError
from localqueue.message import QueueMessage, with_fields
from localqueue.telemetry.carried import called_inside
from localqueue.workers.begun import Begun
from localqueue.workers.context import Slot, nothing_runs
from localqueue.workers.parcel import IMPORTED_MAIN, MAIN, pack, pack_error, unpack
from localqueue.workers.returned import refuse_undone
from localqueue.workers.wire import Wire

if TYPE_CHECKING:
    from localqueue.workers.hand_program import Order

GRACE = 2.0
"""Seconds that a handler has to end when it is told to; and a process without work as well."""
INTERRUPT = signal.SIGTERM
_PR_SET_PDEATHSIG = 1


class Main:
    """The script that was started, imported when something of it is needed."""

    importing = False
    """Whether this process is in the middle of that: whoever starts a worker now never ends."""

    def __init__(self, script: tuple[str, str] | None) -> None:
        self._script = script

    def load(self) -> None:
        """As ``__main__``, but under the name by which multiprocessing does the same."""
        if self._script is None or IMPORTED_MAIN in sys.modules:
            return
        path, package = self._script
        module = ModuleType(IMPORTED_MAIN)
        module.__file__, module.__package__ = path, package
        sys.modules[MAIN] = sys.modules[IMPORTED_MAIN] = module
        Main.importing = True
        try:
            exec(compile(Path(path).read_bytes(), path, "exec"), vars(module))
        finally:
            Main.importing = False


class Child:
    """Runs what comes over ``data``, and answers there; hears over ``control`` when to give up."""

    def __init__(
        self,
        handler: Callable[[Any], Any],
        main: Main,
        data: Wire,
        control: Wire,
        begun: Begun,
    ) -> None:
        self._handler = handler
        self._main = main
        self._data = data
        self._control = control
        self._begun = begun
        self._slot = Slot(0, self._report)
        self._slot.interrupt = self._interrupt
        self._number = 0
        """Of the call that runs, or ran last."""
        self._told_ahead: tuple[int, LocalQueueError] | None = None
        """Words about a call that has not arrived yet."""
        self._changing = threading.Lock()
        self._inside = False
        """Whether the main thread is in the handler, and may be interrupted there."""
        self._spent = False
        """Whether this process should not run another handler."""

    def work(self) -> None:
        """Until the worker says no more."""
        signal.signal(INTERRUPT, self._hear)
        threading.Thread(target=self._listen, name="localqueue-control", daemon=True).start()
        while not self._spent and (frame := self._data.receive()) is not None:
            try:
                answer = self._answer(frame)
            finally:
                self._inside = False
            self._data.send(answer)

    def _answer(self, frame: bytes) -> bytes:
        answer: tuple[str, Any]
        try:
            result = self._call(frame)
        except BaseException as error:
            self._inside = False
            # What is left of memory or of a broken call is no place for the next one.
            self._spent = self._spent or isinstance(error, MemoryError)
            answer = ("raised", pack_error(error))
        else:
            answer = _returned(result)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        return pack((*answer, self._spent))

    def _call(self, frame: bytes) -> Any:
        number, fields, carried = unpack(frame, self._main.load)
        self._begun.write(number)
        message = with_fields(fields)
        slot = self._slot
        with self._changing:
            self._number = number
            slot.begin(message)
            if self._told_ahead is not None and self._told_ahead[0] == number:
                slot.tell(message, self._told_ahead[1])
        try:
            self._inside = True
            told = slot.told(message)
            # What was told before this moment interrupted nothing.
            if told is not None:
                told.check()
            result = called_inside(carried, self._handler, message.value)
            if result is not None:
                refuse_undone(result)
            return result
        finally:
            self._inside = False
            with self._changing:
                slot.rest()
            nothing_runs()

    # --- what the worker says -------------------------------------------------------------------
    def _listen(self) -> None:
        while (frame := self._control.receive()) is not None:
            number, error = unpack(frame)
            with self._changing:
                message = self._slot.message
                if number > self._number:
                    self._told_ahead = (number, error)
                elif number == self._number and message is not None:
                    self._slot.tell(message, error)
        # The worker is gone, and its message is someone else's now.
        if not self._inside:
            time.sleep(GRACE)
        os._exit(1)

    def _interrupt(self, _error: LocalQueueError) -> None:
        self._spent = True
        signal.pthread_kill(threading.main_thread().ident or 0, INTERRUPT)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        """In the main thread: raise there what the handler was told, so that it can clean up."""
        message = self._slot.message
        told = None if message is None else self._slot.told(message)
        if self._inside and told is not None:
            told.check()

    def _report(self, message: QueueMessage[Any], note: str) -> None:
        self._data.send(pack(("progress", message.receipt, note)))


def _returned(result: Any) -> tuple[str, Any]:
    try:
        return "returned", pack(result)
    except Exception as error:
        refusal = InvalidResult(
            f"the handler returned a {type(result).__name__}, which cannot be sent to the worker:"
            f" {error}; return plain values"
        )
        return "raised", pack_error(refusal)


def serve(order: Order) -> None:
    """Find the handler, and run it for the worker until that has no more work."""
    data, control = Wire.of(order["data"]), Wire.of(order["control"])
    begun = Begun(order["begun"])
    os.close(order["begun"])
    # A process that a handler forks would hold them open, and hide that this one has died.
    for wire in (data, control):
        os.register_at_fork(after_in_child=wire.close)
    _leave_signals_to_the_worker()
    _die_with(order["parent"])
    main = Main(order["main"])
    try:
        handler = _find(order["module"], order["name"], main)
    except BaseException as error:
        with contextlib.suppress(OSError):
            data.send(pack(("raised", pack_error(error))))
        return
    with contextlib.suppress(BrokenPipeError, ConnectionError):
        data.send(pack(("ready",)))
        Child(handler, main, data, control, begun).work()


def _find(module: str, name: str, main: Main) -> Callable[[Any], Any]:
    if module == MAIN:
        main.load()
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    handler: Callable[[Any], Any] = found
    return handler


def _leave_signals_to_the_worker() -> None:
    """Whoever stops a worker often signals all its processes, and a drain may take a while."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Functions and not SIG_IGN, which the commands of a handler would inherit.
    for number in (signal.SIGINT, INTERRUPT):
        signal.signal(number, lambda *_: None)
    # What a handler forks is its own and ends when it is asked to, from its first moment on.
    os.register_at_fork(
        before=lambda: _block(signal.SIG_BLOCK),
        after_in_parent=lambda: _block(signal.SIG_UNBLOCK),
        after_in_child=_restore_signals,
    )


def _block(how: int) -> None:
    signal.pthread_sigmask(how, (signal.SIGINT, INTERRUPT))


def _restore_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(INTERRUPT, signal.SIG_DFL)
    _block(signal.SIG_UNBLOCK)


def _die_with(parent: int) -> None:
    """Where the system can do it, it ends this process with its worker, the GIL or not."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
