"""A handler by its name: how another process finds it."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from localqueue.errors import ConfigurationError

MAIN = "__main__"
_ADVICE = 'for kind="process" it must be a function of a module, or of a script that is a file'


@dataclass(frozen=True, slots=True)
class MainScript:
    """The program that was started, so that another process can import it."""

    path: str
    package: str
    """For its relative imports; of a script that was started by its path it is empty."""


@dataclass(frozen=True, slots=True)
class HandlerReference:
    """Where a handler is: a module, and the name in it. ``main`` is None if it cannot be had."""

    module: str
    name: str
    main: MainScript | None

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def reference_to(handler: Callable[[Any], Any]) -> HandlerReference:
    """The name of a handler; ConfigurationError if by its name nobody would find it."""
    module = getattr(handler, "__module__", None)
    name = getattr(handler, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        kind = type(handler).__name__
        raise ConfigurationError(f"the handler is a {kind} without a name of its own; {_ADVICE}")
    if name.rpartition(".")[2] == "<lambda>":
        raise ConfigurationError(f"the handler is a lambda, and those have no name; {_ADVICE}")
    if "<locals>" in name:
        raise ConfigurationError(
            f"the handler {name!r} exists inside a function only, and cannot be imported; {_ADVICE}"
        )
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not handler:
        raise ConfigurationError(
            f"the handler {name!r} of {module!r} cannot be found there by its name; {_ADVICE}"
            " (a method bound to an object is not)"
        )
    main = main_script()
    if module == MAIN:
        _check_main(main, name)
    return HandlerReference(module, name, main)


def main_script() -> MainScript | None:
    """The program that was started, if others can import it."""
    main = sys.modules.get(MAIN)
    path = getattr(main, "__file__", None)
    if main is None or path is None or not Path(path).is_file():
        return None
    package = getattr(getattr(main, "__spec__", None), "parent", None)
    return MainScript(str(Path(path).absolute()), package or "")


def _check_main(main: MainScript | None, name: str) -> None:
    if main is None:
        raise ConfigurationError(
            f"the handler {name!r} was typed in, or its script is not a file; {_ADVICE}"
        )
    if not _is_guarded(sys.modules[MAIN], main.path):
        raise ConfigurationError(
            f"the handler {name!r} is in the script that starts the worker, and every process of"
            ' the worker imports it: put what starts the worker below if __name__ == "__main__":,'
            " or the handler into a module of its own"
        )


def _is_guarded(main: ModuleType, path: str) -> bool:
    """Whether the statement that the script is at now is left out when it is imported."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and not (
        frame.f_code.co_name == "<module>" and frame.f_globals is vars(main)
    ):
        frame = frame.f_back
    if frame is None:
        # It has come to its end: what it did was no worker's run.
        return True
    try:
        statements = ast.parse(Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return True
    for statement in statements:
        if statement.lineno <= frame.f_lineno <= (statement.end_lineno or statement.lineno):
            return isinstance(statement, ast.If) and any(
                isinstance(node, ast.Name) and node.id == "__name__"
                for node in ast.walk(statement.test)
            )
    return True
