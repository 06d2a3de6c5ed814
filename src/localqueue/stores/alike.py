"""The answers to puts that differ in value only, made when somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from localqueue.stores.protocol import Enqueued, Fate, StoredMessage, new_enqueued, new_message

_HISTORY = StoredMessage._fields.index("history")


class AlikeAnswers(Sequence[Enqueued]):
    """What one batch was answered. Thousands of equal answers would cost more than their rows."""

    __slots__ = ("bodies", "ids", "settings_version", "shared")

    def __init__(
        self,
        ids: list[str],
        bodies: Sequence[bytes],
        shared: StoredMessage,
        settings_version: int,
    ) -> None:
        self.ids = ids
        self.bodies = bodies
        self.shared = shared
        """Any one of the messages: they differ in id and body."""
        self.settings_version = settings_version

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Enqueued: ...
    @overload
    def __getitem__(self, index: slice) -> list[Enqueued]: ...
    def __getitem__(self, index: int | slice) -> Enqueued | list[Enqueued]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        message = self.shared._replace(id=self.ids[index], body=self.bodies[index], history=[])
        return Enqueued(message, Fate.STORED, self.settings_version)

    def __iter__(self) -> Iterator[Enqueued]:
        # _replace would take thrice as long.
        before, after = self.shared[3:_HISTORY], self.shared[_HISTORY + 1 :]
        queue, version = self.shared.queue, self.settings_version
        for id_, body in zip(self.ids, self.bodies, strict=True):
            message = new_message((id_, queue, body, *before, [], *after))
            yield new_enqueued((message, Fate.STORED, version, 0.0, ()))
