"""Where an error came from, without the frames of this package that only called the handler."""

from __future__ import annotations

import traceback
from types import TracebackType

_OWN = "localqueue."


def error_info(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """For ``exc_info`` of a log: the traceback begins with the handler, if the error is its own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_OWN):
        trace = trace.tb_next
    return type(error), error, trace


def trace_text(error: BaseException) -> str:
    """Where it was raised, as text, without the error itself at the end; never raises."""
    try:
        info = error_info(error)
        if info[2] is None:
            return ""
        whole = "".join(traceback.format_exception(*info))
        return whole.removesuffix("".join(traceback.format_exception_only(error))).rstrip()
    except Exception:
        # An error may be of any class, and what it answers code of the user.
        return ""
