"""A process that runs handlers, as its worker sees it."""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localqueue.errors import ConfigurationError, HandlerDied, LocalQueueError
from localqueue.workers.begun import Begun, new_file
from localqueue.workers.child import GRACE
from localqueue.workers.hand_program import Order
from localqueue.workers.handler_reference import HandlerReference
from localqueue.workers.parcel import pack, unpack, unpack_error
from localqueue.workers.wire import connected

log = logging.getLogger("localqueue.workers")

PROGRAM = Path(__file__).with_name("hand_program.py")
LOOK_EVERY = 0.1


class ChildProcess:
    """Started when it is made. One thread uses it; ``give_up`` may come from any other."""

    def __init__(self, reference: HandlerReference) -> None:
        self.reference = reference
        self.calls = 0
        self._ending = threading.Lock()
        self._timer: threading.Timer | None = None
        self._data, data = connected()
        self._control, control = connected()
        begun = new_file()
        self._begun = Begun(begun)
        try:
            self._process = _start(reference, data.fileno(), control.fileno(), begun)
        except BaseException:
            self._data.close()
            self._control.close()
            raise
        finally:
            data.close()
            control.close()
            os.close(begun)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_ready(self, has_to_end: Callable[[], bool]) -> bool:
        """Wait until it has imported the handler; False when it is not waited for any longer.

        ConfigurationError when it cannot import it, HandlerDied when it died of that.
        """
        while not self._data.has_something(LOOK_EVERY):
            if has_to_end():
                return False
        frame = self._data.receive()
        if frame is None:
            raise HandlerDied(f"{self.how_it_ended()} while it imported {self.reference}")
        answer = unpack(frame)
        if answer[0] != "ready":
            error = unpack_error(answer[1])
            raise ConfigurationError(
                f"the handler {self.reference} cannot be imported by another process: {error}"
            ) from error
        return True

    def is_gone(self) -> bool:
        """Whether it has died without work."""
        return self._data.is_broken()

    def has_begun(self) -> bool:
        """Whether the handler of the last call was called; also after its end."""
        return self._begun.read() == self.calls

    def send(self, thing: bytes) -> None:
        self._data.send(thing)

    def answer(self) -> tuple[Any, ...] | None:
        """The next thing it says; None when it has died."""
        frame = self._data.receive()
        if frame is None:
            return None
        said: tuple[Any, ...] = unpack(frame)
        return said

    def give_up(self, number: int, error: LocalQueueError) -> None:
        """Tell the handler of this call to end, and see to it that it does. Never blocks."""
        with contextlib.suppress(OSError):
            self._control.send(pack((number, error)))
        with self._ending:
            if self._timer is None and self._process.returncode is None:
                self._timer = threading.Timer(GRACE, self.kill)
                self._timer.daemon = True
                self._timer.start()

    def kill(self) -> None:
        """It, and the commands that its handler runs. From any thread."""
        with self._ending:
            # As long as nobody has waited for it, its number is not given to another group.
            if self._process.returncode is None:
                self._kill_group()

    def end(self) -> None:
        """Let it end by itself if it does so soon; nothing of a call that was given up is left."""
        self._data.say_no_more()
        if not self._data.is_over(GRACE) or self._timer is not None:
            self.kill()
        self._close()

    def end_now(self) -> None:
        self.kill()
        self._close()

    def how_it_ended(self) -> str:
        """After it is gone, or as good as gone: a sentence about it without its end."""
        code = self._reap(GRACE)
        # What it had started is of its group still, so that nobody else has its number.
        self._kill_group()
        self._close()
        if code is None:
            return "the process of the handler closed its connection and was killed"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"the process of the handler was killed by {signal.Signals(-code).name}"
            return f"the process of the handler was killed by signal {-code}"
        return f"the process of the handler exited with status {code}"

    def _close(self) -> None:
        self._reap(None)
        if self._timer is not None:
            self._timer.cancel()
        self._data.close()
        self._control.close()

    def _reap(self, timeout: float | None) -> int | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while True:
            # Not for long: somebody may have to kill it meanwhile, and only while it is not reaped.
            with self._ending:
                code = self._process.poll()
            if code is not None or (deadline is not None and time.monotonic() >= deadline):
                return code
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _start(
    reference: HandlerReference, data: int, control: int, begun: int
) -> subprocess.Popen[bytes]:
    script = reference.main
    order: Order = {
        "path": [str(Path(place).absolute()) for place in sys.path],
        "arguments": list(sys.argv),
        "parent": os.getpid(),
        "data": data,
        "control": control,
        "begun": begun,
        "module": reference.module,
        "name": reference.name,
        "main": None if script is None else (script.path, script.package),
    }
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    process = subprocess.Popen(
        [sys.executable, *flags, PROGRAM],
        stdin=subprocess.PIPE,
        pass_fds=(data, control, begun),
        # Ctrl-C is for the worker, which then drains; and what a handler runs can be ended with it.
        process_group=0,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(marshal.dumps(dict(order)))
    return process
