"""What Spark says about a query, in one line."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The sentence, without the plan and the stack that follow it."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
