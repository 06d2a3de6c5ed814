"""Values, results and errors on their way between a worker and the processes of its handlers."""

from __future__ import annotations

import builtins
import io
import pickle
from collections.abc import Callable
from typing import Any

from localqueue.outcome import describe_error
from localqueue.workers.trace import trace_text

MAIN = "__main__"
IMPORTED_MAIN = "__mp_main__"
"""What a script is called that another process imports; multiprocessing calls it that as well."""
_LONGEST_CHAIN = 8


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, need_main: Callable[[], object]) -> None:
        super().__init__(io.BytesIO(data))
        self._need_main = need_main

    def find_class(self, module: str, name: str) -> Any:
        if module in (MAIN, IMPORTED_MAIN):
            self._need_main()
            module = MAIN
        return super().find_class(module, name)


def pack(thing: Any) -> bytes:
    return pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes, need_main: Callable[[], object] = lambda: None) -> Any:
    """``need_main`` is called before anything of the script that was started is looked up."""
    return _Unpickler(data, need_main).load()


def pack_error(error: BaseException) -> dict[str, Any]:
    """An error and what caused it, as plain values; never raises."""
    packed = _pack_one(error)
    last, cause = packed, error.__cause__
    for _ in range(_LONGEST_CHAIN):
        if cause is None:
            break
        last["cause"] = last = _pack_one(cause)
        cause = cause.__cause__
    packed["trace"] = trace_text(error)
    return packed


def unpack_error(packed: dict[str, Any]) -> BaseException:
    """The error again; one of the same name where it cannot be made, or would say something else.

    Where it was raised is its last note.
    """
    error = _unpack_one(packed)
    if packed.get("cause") is not None:
        error.__cause__ = unpack_error(packed["cause"])
    if packed.get("trace"):
        error.add_note(f"In the process of the handler:\n{packed['trace']}")
    return error


def _pack_one(error: BaseException) -> dict[str, Any]:
    kept = describe_error(error) or {}
    if kept.get("module") == IMPORTED_MAIN:
        kept["module"] = MAIN
    known = next(
        kind
        for kind in type(error).__mro__
        # A group cannot be made without what is in it.
        if kind.__module__ == "builtins" and not issubclass(kind, BaseExceptionGroup)
    )
    return {
        "kept": kept,
        "whole": _pack_if_possible(error),
        "parts": _pack_if_possible((type(error), error.args, vars(error))),
        "known": known.__name__,
    }


def _pack_if_possible(thing: Any) -> bytes | None:
    try:
        return pack(thing)
    except Exception:
        return None


def _unpack_one(packed: dict[str, Any]) -> BaseException:
    for made in (lambda: unpack(packed["whole"]), lambda: _put_together(packed["parts"])):
        try:
            error: BaseException = made()
            # An __init__ that makes its message of other arguments makes another one of it.
            if describe_error(error) == packed["kept"]:
                return error
        except Exception:
            # It takes other arguments, cannot be sent, or its class is not here.
            continue
    return _stand_in(packed["kept"], getattr(builtins, packed["known"]))


def _put_together(parts: bytes) -> BaseException:
    """Without its __init__, which has run once already."""
    kind, arguments, own = unpack(parts)
    error: BaseException = kind.__new__(kind, *arguments)
    error.__dict__.update(own)
    return error


def _stand_in(kept: dict[str, Any], known: type[BaseException]) -> BaseException:
    """An error that is kept, shown and counted like the one that it stands for."""
    kept = dict(kept)
    name, module, text = kept.pop("type"), kept.pop("module"), kept.pop("message")
    body = {"__module__": module, "__str__": lambda self: text, **kept}
    kind: type[BaseException] = type(name, (known,), body)
    return kind.__new__(kind, text)
