"""What becomes of a handler's return value under effectively-once delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


class ResultPolicy(Protocol):
    """Says whether results are kept, and whether a duplicate delivery gets the kept one."""

    @property
    def stores_result(self) -> bool: ...

    @property
    def returns_cached_result(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class NoResultPolicy:
    """Results are not kept; a skipped duplicate returns None."""

    stores_result: ClassVar[bool] = False
    returns_cached_result: ClassVar[bool] = False
    result_store: ClassVar[None] = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "none",
            "stores_result": self.stores_result,
            "returns_cached_result": self.returns_cached_result,
        }


@dataclass(frozen=True, slots=True)
class ReturnStoredResult:
    """Results are kept, and a skipped duplicate returns the kept one.

    Without ``result_store`` the result lies in the idempotency ledger itself.
    """

    result_store: Any = None
    stores_result: ClassVar[bool] = True
    returns_cached_result: ClassVar[bool] = True

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "return-stored",
            "stores_result": self.stores_result,
            "returns_cached_result": self.returns_cached_result,
            "result_store": class_name(self.result_store),
        }


def class_name(store: object) -> str | None:
    """How descriptions name an attached store: by its class, or None."""
    return None if store is None else type(store).__name__


NO_RESULT_POLICY = NoResultPolicy()
RETURN_STORED_RESULT = ReturnStoredResult()
