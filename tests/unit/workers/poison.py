"""Handlers that do to their process what no handler should, as their message says."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from localqueue.workers.context import current_message
from tests.unit.workers.acts import PATIENCE, tell, wait_for


class Strange(Exception):
    """Cannot be made of its own arguments."""

    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"{code} in {where}")
        self.code = code


class Local(Exception):
    """Cannot be sent at all: it has a lock."""

    def __init__(self) -> None:
        super().__init__("with a lock")
        self.lock = threading.Lock()


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def misbehave(value: dict[str, Any]) -> Any:
    """Do what ``value["do"]`` says; where that is nothing special, tell the process' number."""
    tell(value, "began")
    match value["do"]:
        case "abort":
            no_core()
            os.abort()
        case "exit":
            os._exit(value.get("status", 0))
        case "be killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "overflow":
            no_core()
            os.kill(os.getpid(), signal.SIGSEGV)
        case "return a coroutine":
            return asyncio.sleep(0)
        case "eat memory":
            eat_memory()
        case "loop":
            loop(value)
        case "hold the GIL":
            re.match(r"(a+)+$", "a" * 64 + "b")
        case "swallow everything":
            while True:
                try:
                    loop({})
                except Exception:
                    continue
        case "run a command and hold the GIL":
            command = subprocess.Popen(["sleep", "600"])
            tell(value, f"command {command.pid}")
            re.match(r"(a+)+$", "a" * 64 + "b")
        case "fork and be killed":
            # It lives on after its parent, with all that it has inherited.
            forked = os.fork()
            if not forked:
                time.sleep(3 * PATIENCE)
                os._exit(0)
            tell(value, f"command {forked}")
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop a process of its own":
            one = multiprocessing.get_context("fork").Process(target=time.sleep, args=(PATIENCE,))
            one.start()
            one.terminate()
            one.join()
            tell(value, f"stopped {one.exitcode}")
        case "close everything":
            os.closerange(3, 256)
            loop({})
        case "list files":
            tell(value, " ".join(open_files()))
        case "strange":
            raise Strange(7, where="there")
        case "local":
            raise Local from KeyError("k")
        case "broken":
            raise Broken
        case "group":
            raise ExceptionGroup("many", [Local(), ValueError("v")])
        case "return a lock":
            return threading.Lock()
        case "print":
            sys.stdout.write("to the output\n")
            sys.stderr.write("to the errors\n")
        case "wait":
            tell(value, f"waits {os.getpid()}")
            wait_for(Path(value["until"]), None)
        case "wait for a command":
            tell(value, f"waits {os.getpid()}")
            waiting = f"while [ ! -e '{value['until']}' ]; do sleep 0.01; done"
            subprocess.run(["sh", "-c", waiting], check=True, timeout=PATIENCE)
        case "poll":
            current = current_message()
            while not current.wait(1.0):
                pass
            tell(value, f"{type(current.reason).__name__} {current.lease_lost}")
    tell(value, f"pid {os.getpid()}")
    tell(value, "ended")
    return value.get("result")


def open_files() -> list[str]:
    files = []
    for each in Path("/proc/self/fd").iterdir():
        # One of them was the folder itself.
        with contextlib.suppress(FileNotFoundError):
            files.append(str(each.readlink()))
    return files


def loop(value: dict[str, Any]) -> None:
    try:
        while True:
            pass
    finally:
        if value:
            tell(value, "cleaned up")


def eat_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 2**20, most))
    eaten = []
    while True:
        eaten.append(bytearray(2**20))


def no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Holder:
    @staticmethod
    def static(value: Any) -> None:
        """A handler that a class keeps."""

    def method(self, value: Any) -> None:
        """Belongs to an object, which another process does not have."""

    def __call__(self, value: Any) -> None:
        """So does this."""
