"""How a handler's result, its side effects and the acknowledgement become durable together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.errors import WrongType
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

    The relay may see an envelope more than once, after a crash between sending and noting it.
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

    A crash in between leaves prepared participants; the redelivery finishes them.
    """

    prepare_store: Any = None
    commit_store: Any = None
    participants: Sequence[Any] = ()
    mode: ClassVar[str] = "two-phase"
    local_commit: ClassVar[bool] = False
    coordinates_effects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "participants", _listed("participants", self.participants))

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
    """Steps run one by one; when one fails, those before it are compensated."""

    saga_store: Any = None
    steps: Sequence[Any] = ()
    mode: ClassVar[str] = "saga"
    local_commit: ClassVar[bool] = False
    coordinates_effects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _listed("steps", self.steps))

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
