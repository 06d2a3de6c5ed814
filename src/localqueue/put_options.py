"""From values and the options of a put to what the store is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeGuard

from localqueue.checks import check_key, check_priority, check_seconds
from localqueue.codec import Codec, JsonCodec, encode_headers
from localqueue.policies.compatibility import Use, check_use
from localqueue.policies.resolved import ResolvedPolicies
from localqueue.stores.protocol import Put
from localqueue.stores.settings import QueueSettings

Key = str | Callable[[Any], str] | None
"""A key for all messages of a batch, or a function that makes it from the value."""

_put = partial(tuple.__new__, Put)
"""``Put._make`` without a function of Python's own in between: every put comes through here."""


class PutOptions(NamedTuple):
    """What one call of put, put_many or put_stream asks for all its messages."""

    delay: float = 0.0
    priority: int = 0
    dedupe_key: Key = None
    headers: Mapping[str, str] | None = None
    ordering_key: Key = None
    ttl: float | None = None
    request_id: str | None = None


USUAL = PutOptions()
"""What asks for nothing."""


def put_options(
    delay: float = 0.0,
    priority: int = 0,
    dedupe_key: Key = None,
    headers: Mapping[str, str] | None = None,
    ordering_key: Key = None,
    ttl: float | None = None,
    request_id: str | None = None,
) -> PutOptions:
    """The options of a call; ``USUAL`` itself when they ask for nothing, as most do."""
    if (
        dedupe_key is None
        and headers is None
        and ordering_key is None
        and ttl is None
        and request_id is None
        # What only equals the default has to be refused: False is no 0.
        and type(delay) is float
        and type(priority) is int
        and delay == priority == 0
    ):
        return USUAL
    return PutOptions(delay, priority, dedupe_key, headers, ordering_key, ttl, request_id)


class PutMakers:
    """The makers of one queue. Most puts ask for nothing, so the maker for those is kept."""

    def __init__(self, policies: ResolvedPolicies) -> None:
        self._policies = policies
        self._usual: PutMaker | None = None

    def maker(self, options: PutOptions, in_force: QueueSettings) -> PutMaker:
        """InvalidMessage when the queue, with these settings in force, does not take such puts."""
        made = self.usual(options, in_force)
        if made is None:
            made = PutMaker(self._policies, in_force, options)
            if options is USUAL:
                self._usual = made
        return made

    def usual(self, options: PutOptions, in_force: QueueSettings) -> PutMaker | None:
        """The one that is kept, if it serves these options."""
        usual = self._usual
        if options is USUAL and usual is not None and usual.in_force is in_force:
            return usual
        return None


class PutMaker:
    """Makes the puts of one call. What cannot be stored is refused before anything is."""

    __slots__ = ("_codec", "_name", "_options", "_policies", "_rest", "_tail", "in_force")

    def __init__(
        self, policies: ResolvedPolicies, in_force: QueueSettings, options: PutOptions
    ) -> None:
        delay = check_seconds("delay", options.delay)
        if options.dedupe_key is not None and not callable(options.dedupe_key):
            check_key("dedupe_key", options.dedupe_key)
        check_priority(options.priority)
        if options.ordering_key is not None and not callable(options.ordering_key):
            check_key("ordering_key", options.ordering_key)
        if options.ttl is not None:
            check_seconds("ttl", options.ttl, zero=False)
        if options.request_id is not None:
            check_key("request_id", options.request_id)
        self._policies = policies
        self.in_force = in_force
        self._options = options
        self._codec = policies.codec_policy
        # What all messages have in common stands ready, so that a batch costs little per message.
        self._rest = Put(
            policies.name,
            b"",
            self._codec.id,
            encode_headers(options.headers),
            delay,
            options.priority,
            ttl=options.ttl,
            request_id=options.request_id,
            dedupe_window=policies.dedupe_window,
            conflict_is_error=policies.conflict_is_error,
        )
        self._name, self._tail = policies.name, self._rest[2:]
        if not callable(options.dedupe_key) and not callable(options.ordering_key):
            self._check_use(options.dedupe_key, options.ordering_key)

    def __call__(self, item: Any) -> Put:
        options = self._options
        body = self._codec.encode(item)
        if options.dedupe_key is None and options.ordering_key is None:
            return _put((self._name, body, *self._tail))
        dedupe_key = _key("dedupe_key", options.dedupe_key, item)
        ordering_key = _key("ordering_key", options.ordering_key, item)
        if callable(options.dedupe_key) or callable(options.ordering_key):
            self._check_use(dedupe_key, ordering_key)
        rest = self._rest
        return Put(
            rest.queue,
            body,
            rest.codec,
            rest.headers,
            rest.delay,
            rest.priority,
            ordering_key,
            rest.ttl,
            dedupe_key,
            rest.dedupe_window,
            0 if dedupe_key is None else self._codec.fingerprint(item, body),
            rest.conflict_is_error,
            rest.request_id,
        )

    def many(self, items: Sequence[Any]) -> list[Put]:
        """What a call makes of each."""
        options, codec = self._options, self._codec
        if options.dedupe_key is None and options.ordering_key is None and _is_json(codec):
            name, tail = self._name, self._tail
            return [_put((name, body, *tail)) for body in codec.encode_many(items)]
        return [self(item) for item in items]

    def _check_use(self, dedupe_key: str | None, ordering_key: str | None) -> None:
        use = Use(
            "put",
            self.in_force,
            self._options.priority,
            ordering_key,
            dedupe_key,
            self._rest.delay,
        )
        check_use(self._policies, use)


def _is_json(codec: Codec) -> TypeGuard[JsonCodec]:
    # Not one that was made of it: it may encode differently.
    return type(codec) is JsonCodec


def _key(what: str, key: Key, item: Any) -> str | None:
    return check_key(what, key(item)) if callable(key) else key
