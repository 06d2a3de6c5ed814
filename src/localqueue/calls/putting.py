"""Putting: encode, store, notice the settings in force, run the hooks, pause when throttled."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from queue import Full
from typing import Any, TypeVar

from localqueue.calls.attachment import Attachment
from localqueue.calls.batches import LARGE, Chunks
from localqueue.calls.face import Face
from localqueue.calls.hooks import Hooks
from localqueue.calls.in_force import InForce
from localqueue.calls.looking import shown
from localqueue.calls.patience import deadline_in
from localqueue.calls.room import Room
from localqueue.checks import check_count, check_timeout
from localqueue.clock import StoreTime
from localqueue.errors import InvalidMessage
from localqueue.message import QueueMessage
from localqueue.put_options import PutMaker, PutMakers, PutOptions
from localqueue.stores.alike import AlikeAnswers
from localqueue.stores.present import present_alike, present_value
from localqueue.stores.protocol import LARGEST_BATCH, Enqueued, Fate, Put, QueueIsFull

T = TypeVar("T")
Progress = Callable[[int], object] | None


class Putting:
    """What put, put_many and put_stream do."""

    def __init__(self, attachment: Attachment, face: Face, in_force: InForce, room: Room) -> None:
        self._attachment = attachment
        self._face = face
        self._in_force = in_force
        self._room = room
        self._policies = attachment.policies
        self._makers = PutMakers(attachment.policies)
        self._emitter = attachment.emitter
        self._hooks = Hooks(attachment.policies, attachment.emitter)

    async def put(
        self, item: T, block: bool, timeout: float | None, options: PutOptions
    ) -> QueueMessage[T]:
        # Most calls are this one, so it takes no step that only a batch needs.
        attachment = self._attachment
        seen = attachment.settings
        make = None if seen is None else self._makers.usual(options, seen[0])
        put = (make or await self._maker(options))(item)
        seconds = None if timeout is None else check_timeout(timeout)
        when = attachment.when or await self._face.open()
        answer = (await self._stored((put,), when, block, seconds))[0]
        drift = when.drift()
        message = self._shown(answer, item, drift)
        if (announce := self._emitter.announce) is not None:
            announce.enqueued((answer,), (message,))
        if self._hooks.wanted():
            await self._face.run(partial(self._hooks.run, (answer,), (message,), drift))
        if block and answer.delay > 0:
            await self._pause((answer,), seconds)
        return message

    async def put_many(
        self, items: Iterable[T], block: bool, timeout: float | None, options: PutOptions
    ) -> list[QueueMessage[T]]:
        make = await self._maker(options)
        values = list(items)
        if not values:
            return []
        if len(values) < LARGE:
            puts = make.many(values)
        else:
            puts = await self._face.run(lambda: make.many(values))
        return await self._enqueue(puts, values, block, timeout)

    async def put_stream(
        self, items: Iterable[Any], chunk: int, options: PutOptions, on_progress: Progress
    ) -> int:
        chunks = await self._chunks(chunk, options)
        for item in items:
            if full := chunks.add(item):
                await self._put_chunk(full, chunks, on_progress)
        return await self._end_stream(chunks, on_progress)

    async def put_async_stream(
        self, items: AsyncIterable[Any], chunk: int, options: PutOptions, on_progress: Progress
    ) -> int:
        chunks = await self._chunks(chunk, options)
        async for item in items:
            if full := chunks.add(item):
                await self._put_chunk(full, chunks, on_progress)
        return await self._end_stream(chunks, on_progress)

    async def _chunks(self, chunk: int, options: PutOptions) -> Chunks:
        most = check_count("chunk", chunk, least=1)
        make = await self._maker(options)
        in_force = await self._in_force.known()
        return Chunks(make, min(most, LARGEST_BATCH, in_force.maxsize or LARGEST_BATCH))

    async def _put_chunk(
        self, chunk: tuple[list[Put], list[Any]], chunks: Chunks, on_progress: Progress
    ) -> None:
        puts, values = chunk
        await self._enqueue(puts, values, True, None)
        chunks.done += len(puts)
        if on_progress is not None:
            on_progress(chunks.done)

    async def _end_stream(self, chunks: Chunks, on_progress: Progress) -> int:
        if rest := chunks.rest():
            await self._put_chunk(rest, chunks, on_progress)
        return chunks.done

    async def _maker(self, options: PutOptions) -> PutMaker:
        if callable(options.ordering_key):
            return self._makers.maker(options, await self._in_force.now())
        seen = self._attachment.settings
        known = await self._in_force.known() if seen is None else seen[0]
        try:
            return self._makers.maker(options, known)
        except InvalidMessage:
            # The row decides what is allowed, and may have changed since this object looked.
            in_force = await self._in_force.now()
            if in_force == known:
                raise
            return self._makers.maker(options, in_force)

    async def _enqueue(
        self, puts: Sequence[Put], values: Sequence[T], block: bool, timeout: float | None
    ) -> list[QueueMessage[T]]:
        seconds = check_timeout(timeout)
        when = self._attachment.when or await self._face.open()
        answers = await self._stored(puts, when, block, seconds)
        drift = when.drift()
        if len(puts) < LARGE:
            messages = self._presented(answers, values, drift)
        else:
            messages = await self._face.run(lambda: self._presented(answers, values, drift))
        if (announce := self._emitter.announce) is not None:
            tell = partial(announce.enqueued, answers, messages)
            tell() if len(puts) < LARGE else await self._face.run(tell)
        if self._hooks.wanted():
            await self._face.run(partial(self._hooks.run, answers, messages, drift))
        if block and type(answers) is not AlikeAnswers:
            await self._pause(answers, seconds)
        return messages

    async def _stored(
        self, puts: Sequence[Put], when: StoreTime, block: bool, seconds: float | None
    ) -> Sequence[Enqueued]:
        """The answers, when there was room; what they tell of the settings in force is noticed."""
        deadline = None if seconds is None else deadline_in(seconds)
        full = None
        try:
            try:
                answers = await self._face.ask(lambda store: store.enqueue_many(puts, now=when.now))
            except QueueIsFull as refused:
                full = refused
            if full is not None:
                if not block:
                    raise Full(str(full))
                answers = await self._room.store(puts, full, deadline)
        except InvalidMessage:
            # The queue's row may allow less than this object was built with: then say so as well.
            await self._in_force.notice()
            raise
        version = (answers if type(answers) is AlikeAnswers else answers[0]).settings_version
        seen = self._attachment.settings
        if seen is None or seen[1] != version:
            await self._in_force.notice()
        return answers

    async def _pause(self, answers: Sequence[Enqueued], seconds: float | None) -> None:
        """For as long as the throttled ask for."""
        pause = max([answer.delay for answer in answers])
        if pause > 0:
            queues = {stored.queue for a in answers for stored in a.copies or (a.message,)}
            await self._room.pause(pause if seconds is None else min(pause, seconds), queues)

    def _presented(
        self, answers: Sequence[Enqueued], values: Sequence[T], drift: float
    ) -> list[QueueMessage[T]]:
        if type(answers) is AlikeAnswers:
            return present_alike(answers, values, drift)
        return [
            self._shown(answer, value, drift) for answer, value in zip(answers, values, strict=True)
        ]

    def _shown(self, answer: Enqueued, value: T, drift: float) -> QueueMessage[T]:
        if answer.fate is Fate.DUPLICATE:
            found = shown(answer.message, self._policies.codec_policy, drift)
            return replace(found, duplicate=True)
        return present_value(answer.message, value, drift, dropped=answer.fate is Fate.DROPPED)
