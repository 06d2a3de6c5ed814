"""Everything localqueue raises, in one tree.

LocalQueueError
├── ConfigurationError (ValueError)     things were combined that cannot work together
├── InvalidArgument (ValueError)        a number, name or limit that no call can mean
├── WrongType (TypeError)               an argument of a type that no call takes
├── InvalidMessage (ValueError)         a value, header, key or priority cannot be stored
│   ├── InvalidMessageType (TypeError)  the same, because of its type
│   ├── DamagedMessage                  what is stored is not what was put; it is never handed out
│   └── DuplicateConflict               the dedupe key belongs to a message with another value
├── InvalidResult (ValueError)          a handler's result cannot be stored
├── PayloadMismatch (ValueError)        a payload does not fit the schema it is read with
├── AdapterClosed                       a dispatcher was closed before the message reached it
├── LeaseLost                           the receipt is stale: someone else owns the message now
├── HandlerTimeout (TimeoutError)       the handler ran longer than its worker allows
├── HandlerCancelled                    somebody cancelled the message while its handler ran
├── HandlerDied                         the process that ran the handler died with it
├── WorkerStopped                       the worker stops and has given the message back
├── PersistentRetryExhausted (RuntimeError)  all attempts under a retry key are spent
├── RecordConflict                      a record changed since it was read
├── UnsupportedByStore                  this store has no such ability; its capabilities say so
└── StoreError                          the backend failed; the driver's own error is __cause__
    ├── StoreBusy                       transient: the same call may succeed later
    │   ├── AttemptStoreLockedError (RuntimeError)  the same, of an attempt store
    │   ├── IdempotencyStoreLockedError (RuntimeError)  of a ledger
    │   └── ResultStoreLockedError (RuntimeError)  of a result store
    ├── StoreFull                       the disk or quota is full; what was stored is intact
    ├── StoreCorrupt                    terminal: stop and look
    ├── StoreReadOnly                   the file or its folder may not be written
    ├── StoreMissing                    there is no store to look after at this path
    ├── StoreMoved                      the file was deleted or replaced while it was open
    ├── StoreUnsupported (ValueError)   not a file that this release reads: foreign or newer
    ├── StoreClosed                     close() was called
    ├── JournalTrimmed                  events after this position are gone already
    └── JournalForeign (ValueError)     the position belongs to another store

``queue.Empty`` and ``queue.Full`` stay the standard library's own.
"""

from __future__ import annotations

import pathlib


class LocalQueueError(Exception):
    """The root of the tree: ``except LocalQueueError`` catches everything below."""


class ConfigurationError(LocalQueueError, ValueError):
    """Things were combined that cannot work together; the sentence says what to do."""


class InvalidArgument(LocalQueueError, ValueError):
    """A number, name or limit that no call can mean; nothing was changed."""


class WrongType(LocalQueueError, TypeError):
    """An argument of a type that no call takes; nothing was changed."""


class InvalidMessage(LocalQueueError, ValueError):
    """The value, header, key or priority cannot be stored; nothing was."""


class InvalidMessageType(InvalidMessage, TypeError):
    """A part of the message has a type that cannot be stored; nothing was."""


class DamagedMessage(InvalidMessage):
    """What is stored is not what was put: the checksum or the codec says so."""


class DuplicateConflict(InvalidMessage):
    """The dedupe key belongs to a message with another value, which the policy calls an error."""


class InvalidResult(LocalQueueError, ValueError):
    """A handler's result cannot be stored, so its message failed; nothing of it was stored."""


class PayloadMismatch(LocalQueueError, ValueError):
    """A payload does not fit the schema that it is read with; the message is as it was."""


class AdapterClosed(LocalQueueError):
    """A dispatcher was closed before the message reached it; the message is stored and waits."""


class LeaseLost(LocalQueueError):
    """The receipt is stale: the lease ended and someone else may own the message now."""


class HandlerTimeout(LocalQueueError, TimeoutError):
    """The handler ran longer than its worker allows; the delivery failed, whatever it returns."""


class HandlerCancelled(LocalQueueError):
    """Somebody cancelled the message while its handler ran; it is removed when the handler ends."""


class HandlerDied(LocalQueueError):
    """The process that ran the handler died with it; the message is charged with a crash."""


class WorkerStopped(LocalQueueError):
    """The worker stops and has given the message back; what the handler returns is dropped."""


class PersistentRetryExhausted(LocalQueueError, RuntimeError):
    """All attempts under a retry key are spent; the function was not called."""

    def __init__(self, key: str, attempts: int) -> None:
        super().__init__(key, attempts)
        self.key = key
        self.attempts = attempts

    def __str__(self) -> str:
        return f"retry key {self.key!r} is exhausted after {self.attempts} attempts"


class RecordConflict(LocalQueueError):
    """A record has another version than expected; nothing was written."""


class UnsupportedByStore(LocalQueueError):
    """This store does not have the ability that the call needs."""


class StoreError(LocalQueueError):
    """The backend failed. The driver's own error is ``__cause__``."""


class StoreBusy(StoreError):
    """Someone else holds the store; the same call may succeed later."""


class AttemptStoreLockedError(StoreBusy, RuntimeError):
    """Another process holds the attempt store; the same call may succeed later."""

    def __init__(self, path: pathlib.Path | str) -> None:
        super().__init__(path)
        self.path = pathlib.Path(path)

    def __str__(self) -> str:
        return f"the attempt store {str(self.path)!r} is locked by another process"


class IdempotencyStoreLockedError(StoreBusy, RuntimeError):
    """Another process holds the file of a ledger; the same call may succeed later."""

    def __init__(self, path: pathlib.Path | str) -> None:
        super().__init__(path)
        self.path = pathlib.Path(path)

    def __str__(self) -> str:
        return f"the idempotency store {str(self.path)!r} is locked by another process"


class ResultStoreLockedError(StoreBusy, RuntimeError):
    """Another process holds the file of a result store; the same call may succeed later."""

    def __init__(self, path: pathlib.Path | str) -> None:
        super().__init__(path)
        self.path = pathlib.Path(path)

    def __str__(self) -> str:
        return f"the result store {str(self.path)!r} is locked by another process"


class StoreFull(StoreError):
    """The disk or quota is full; what was stored is intact."""


class StoreCorrupt(StoreError):
    """The file is damaged. Nothing is repaired or recreated by itself."""


class StoreReadOnly(StoreError):
    """The file or its folder may not be written by this process."""


class StoreMissing(StoreError):
    """There is no store at this path; only a queue's calls make one."""


class StoreMoved(StoreError):
    """The file was deleted or replaced while it was open; reopen it on purpose."""


class StoreUnsupported(StoreError, ValueError):
    """Not a file that this release reads; it was not touched."""


class StoreClosed(StoreError):
    """The store or queue was closed; make a new one."""


class JournalTrimmed(StoreError):
    """Events after the asked position are gone already."""


class JournalForeign(StoreError, ValueError):
    """The position belongs to another store, or to this one before it was restored."""


class CompatibilityWarning(UserWarning):
    """A combination of policies that works, but may not mean what it seems to say."""


class SettingsOverwritten(UserWarning):
    """Another process wrote other settings for this queue; those act now."""
