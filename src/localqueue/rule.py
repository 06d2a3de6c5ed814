"""The worker rule: from how a handler ended to what the store is told. It decides and does nothing.

Every worker calls it, whatever runs its handlers, and all of them spend one budget: the failures
that the store has counted for the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localqueue.checks import check_count, check_seconds
from localqueue.errors import InvalidArgument, InvalidResult, WrongType
from localqueue.outcome import (
    Abandoned,
    Ack,
    Cancel,
    Crashed,
    DeadLetter,
    Died,
    Failed,
    Interrupted,
    Outcome,
    Reject,
    Release,
    Retry,
    Settlement,
    Snooze,
    Succeeded,
    describe_error,
)

DEFAULT_TRIES = 5
PERMANENT_ERRORS: tuple[type[BaseException], ...] = (ImportError, NameError, InvalidResult)
"""The program is broken, not the message: the same code fails again."""
COMMAND_NOT_FOUND = 127
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed message waits: ``first`` seconds, then ``factor`` times as long each time.

    At most ``longest``; ``jitter`` stretches a wait by up to that part of itself, so that messages
    that failed together do not come back together.
    """

    first: float = 1.0
    longest: float = 300.0
    factor: float = 2.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", check_seconds("first", self.first))
        object.__setattr__(self, "longest", check_seconds("longest", self.longest))
        for name in ("factor", "jitter"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise WrongType(f"{name} must be a number, not {type(value).__name__}")
        if not 1 <= self.factor <= 100:
            raise InvalidArgument("factor must be between 1 and 100")
        if not 0 <= self.jitter <= 1:
            raise InvalidArgument("jitter must be between 0 and 1")

    def delay(self, failures: int, luck: float = 0.0) -> float:
        """Seconds to wait after this many earlier failures; ``luck`` is between 0 and 1."""
        # Beyond this many every sensible wait is the longest, and a float ends somewhere.
        grown = self.first * self.factor ** min(failures, _MOST_DOUBLINGS)
        return min(grown, self.longest) * (1 + self.jitter * luck)


DEFAULT_BACKOFF = Backoff()


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What becomes of messages that fail.

    ``max_tries`` bounds the deliveries that may fail; None is for ever. The last one makes a dead
    letter or, with ``dead_letter_on_failure=False``, is released like the others. No release comes
    back before ``release_delay``.
    """

    max_tries: int | None = DEFAULT_TRIES
    backoff: Backoff = DEFAULT_BACKOFF
    dead_letter_on_failure: bool = True
    release_delay: float = 0.0
    permanent: tuple[type[BaseException], ...] = PERMANENT_ERRORS

    def __post_init__(self) -> None:
        if self.max_tries is not None:
            check_count("max_tries", self.max_tries, least=1)
        if not isinstance(self.backoff, Backoff):
            raise WrongType(f"backoff must be a Backoff, not {type(self.backoff).__name__}")
        object.__setattr__(
            self, "release_delay", check_seconds("release_delay", self.release_delay)
        )

    def is_permanent(self, error: BaseException) -> bool:
        """Whether another try cannot help: the code is missing, or the command is."""
        if isinstance(error, self.permanent):
            return True
        try:
            return bool(getattr(error, "exit_code", None) == COMMAND_NOT_FOUND)
        except Exception:
            # An error may be of any class, and what it answers code of the user.
            return False

    def is_spent(self, failures: int) -> bool:
        """Whether one more failure after these is the last that is allowed."""
        return self.max_tries is not None and failures + 1 >= self.max_tries


DEFAULT_FAILURE_POLICY = FailurePolicy()


def settle(
    outcome: Outcome,
    *,
    failures: int,
    policy: FailurePolicy = DEFAULT_FAILURE_POLICY,
    luck: float = 0.0,
) -> Settlement:
    """What the store is told. ``failures`` are those that were counted before this delivery.

    Succeeded → Ack. Interrupted → Release now, uncharged. Failed → Release later while there are
    tries left, else DeadLetter; permanent errors and Reject → DeadLetter; Snooze → Release
    uncharged. Died → Crashed. Abandoned → Cancel.
    """
    match outcome:
        case Succeeded(result):
            return Ack(result)
        case Interrupted():
            return Release()
        case Died(error):
            return Crashed(describe_error(error))
        case Abandoned():
            return Cancel()
        case Failed(Snooze() as snooze):
            return Release(snooze.seconds)
        case Failed(error):
            return _after_failure(error, failures, policy, luck)


def _after_failure(
    error: BaseException, failures: int, policy: FailurePolicy, luck: float
) -> Settlement:
    kept = describe_error(_reason(error))
    if isinstance(error, Reject) or policy.is_permanent(error):
        return DeadLetter(kept)
    if policy.is_spent(failures) and policy.dead_letter_on_failure:
        return DeadLetter(kept)
    delay = error.after if isinstance(error, Retry) else None
    if delay is None:
        delay = policy.backoff.delay(failures, luck)
    return Release(max(delay, policy.release_delay), kept)


def _reason(error: BaseException) -> BaseException:
    """What is kept of an error: a Retry is only the messenger of its cause."""
    if isinstance(error, Retry) and error.__cause__ is not None:
        return error.__cause__
    return error
