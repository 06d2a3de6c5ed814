"""How a handler's result, its side effects and the acknowledgement become durable together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from localqueue.checks import check_key
from localqueue.errors import ConfigurationError, WrongType
from localqueue.message import QueueMessage
from localqueue.policies.results import class_name


class CommitPolicy(Protocol):
    """Names the way in which a success is made durable. A missing store is the queue's own."""

    @property
    def mode(self) -> str: ...

    @property
    def local_commit(self) -> bool:
        """Everything it writes can share the acknowledgement's transaction."""

    @property
    def coordinates_effects(self) -> bool:
        """It reaches beyond the queue's own state."""

    def as_dict(self) -> dict[str, Any]: ...


@runtime_checkable
class Participant(Protocol):
    """Somebody who takes part in a two-phase commit. Every call may come again after a crash."""

    def prepare(self, transaction: str, message: QueueMessage[Any], result: Any) -> None:
        """Make sure, durably, that ``commit`` can be done from now on; raise to refuse."""

    def commit(self, transaction: str) -> None:
        """Do what was prepared. Nothing when it is done already."""

    def abort(self, transaction: str) -> None:
        """Forget what was prepared. Nothing when it is unknown, or committed already."""

    def in_doubt(self) -> Sequence[str]:
        """The transactions that are prepared and were neither committed nor aborted."""


@dataclass(frozen=True, slots=True)
class SagaStep:
    """A step forward, and how its effect is taken back; both get the message and its result.

    Both may be called again after a crash, so they have to recognise what they have done, by the
    key of the message. A step that raises has had no effect. Without a compensation the effect of
    the step stands, whatever fails after it.
    """

    name: str
    action: Callable[[QueueMessage[Any], Any], object]
    compensation: Callable[[QueueMessage[Any], Any], object] | None = None

    def __post_init__(self) -> None:
        check_key("step name", self.name)
        if not callable(self.action):
            raise WrongType(f"action must be callable, not {type(self.action).__name__}")
        if self.compensation is not None and not callable(self.compensation):
            raise WrongType(
                f"compensation must be callable, not {type(self.compensation).__name__}"
            )


@dataclass(frozen=True, slots=True)
class LocalAtomicCommit:
    """Result, ledger and acknowledgement are written together where they share a store."""

    mode: ClassVar[str] = "local-atomic"
    local_commit: ClassVar[bool] = True
    coordinates_effects: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "local_commit": self.local_commit,
            "coordinates_effects": self.coordinates_effects,
        }


@dataclass(frozen=True, slots=True)
class TransactionalOutboxCommit:
    """An envelope is written together with the acknowledgement; ``relay`` sends it afterwards.

    The relay may see an envelope more than once, after a crash between sending and noting it. When
    it returns, the envelope is removed; without a relay envelopes stay in the outbox store.
    """

    outbox_store: Any = None
    relay: Callable[[dict[str, Any]], object] | None = None
    mode: ClassVar[str] = "transactional-outbox"
    local_commit: ClassVar[bool] = True
    coordinates_effects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.relay is not None and not callable(self.relay):
            raise WrongType(f"relay must be callable, not {type(self.relay).__name__}")

    def as_dict(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "mode": self.mode,
            "local_commit": self.local_commit,
            "coordinates_effects": self.coordinates_effects,
            "outbox_store": class_name(self.outbox_store),
        }
        if self.relay is not None:
            described["relay"] = True
        return described


@dataclass(frozen=True, slots=True)
class TwoPhaseCommit:
    """Every participant prepares before any of them commits.

    The decision is durable with the acknowledgement. A crash before it aborts what was prepared, a
    crash after it leaves participants prepared until a worker recovers and commits them.
    """

    prepare_store: Any = None
    commit_store: Any = None
    participants: Sequence[Participant] = ()
    mode: ClassVar[str] = "two-phase"
    local_commit: ClassVar[bool] = False
    coordinates_effects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        listed = _listed("participants", self.participants)
        object.__setattr__(self, "participants", listed)
        for participant in listed:
            if not isinstance(participant, Participant):
                raise WrongType(
                    f"{type(participant).__name__} is no participant: it needs prepare, commit,"
                    " abort and in_doubt"
                )

    def as_dict(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "mode": self.mode,
            "local_commit": self.local_commit,
            "coordinates_effects": self.coordinates_effects,
            "prepare_store": class_name(self.prepare_store),
            "commit_store": class_name(self.commit_store),
        }
        if self.participants:
            described["participant_count"] = len(self.participants)
        return described


@dataclass(frozen=True, slots=True)
class SagaCommit:
    """Steps run one by one after the handler; when one fails, those before it are compensated."""

    saga_store: Any = None
    steps: Sequence[SagaStep] = ()
    mode: ClassVar[str] = "saga"
    local_commit: ClassVar[bool] = False
    coordinates_effects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        listed = _listed("steps", self.steps)
        object.__setattr__(self, "steps", listed)
        for step in listed:
            if not isinstance(step, SagaStep):
                raise WrongType(f"a step must be a SagaStep, not {type(step).__name__}")
        names = [step.name for step in listed]
        if len(names) != len(set(names)):
            raise ConfigurationError(
                f"the steps of a saga need different names, not {', '.join(names)}"
            )

    def as_dict(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "mode": self.mode,
            "local_commit": self.local_commit,
            "coordinates_effects": self.coordinates_effects,
            "saga_store": class_name(self.saga_store),
        }
        if self.steps:
            described["step_count"] = len(self.steps)
        return described


def _listed(what: str, items: Any) -> tuple[Any, ...]:
    try:
        return tuple(items)
    except TypeError:
        raise WrongType(f"{what} must be an iterable, not {type(items).__name__}") from None


LOCAL_ATOMIC_COMMIT = LocalAtomicCommit()
TRANSACTIONAL_OUTBOX_COMMIT = TransactionalOutboxCommit()
TWO_PHASE_COMMIT = TwoPhaseCommit()
