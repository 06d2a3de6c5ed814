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
        self._hooks = Hooks(attachment.policies)

    async def put(
        self, item: T, block: bool, timeout: float | None, options: PutOptions
    ) -> QueueMessage[T]:
        make = await self._maker(options)
        return (await self._enqueue((make(item),), (item,), block, timeout))[0]

    async def put_many(
        self, items: Iterable[T], block: bool, timeout: float | None, options: PutOptions
    ) -> list[QueueMessage[T]]:
        make = await self._maker(options)
        values = list(items)
        if not values:
            return []
        if len(values) < LARGE:
            puts = [make(item) for item in values]
        else:
            puts = await self._face.run(lambda: [make(item) for item in values])
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
        attachment, face = self._attachment, self._face
        seconds = check_timeout(timeout)
        when = attachment.when or await face.open()
        try:
            answers = await self._stored(puts, when, block, seconds)
        except InvalidMessage:
            # The queue's row may allow less than this object was built with: then say so as well.
            await self._in_force.notice()
            raise
        if attachment.settings is None or attachment.settings[1] != _version_of(answers):
            await self._in_force.notice()
        drift = when.drift()
        if len(puts) < LARGE:
            messages = self._presented(answers, values, drift)
        else:
            messages = await face.run(lambda: self._presented(answers, values, drift))
        if self._hooks.wanted():
            await face.run(partial(self._hooks.run, answers, messages, drift))
        if block and (pause := _pause_after(answers)) > 0:
            queues = {stored.queue for a in answers for stored in a.copies or (a.message,)}
            await self._room.pause(pause if seconds is None else min(pause, seconds), queues)
        return messages

    async def _stored(
        self, puts: Sequence[Put], when: StoreTime, block: bool, seconds: float | None
    ) -> Sequence[Enqueued]:
        deadline = deadline_in(seconds)
        try:
            return await self._face.ask(lambda store: store.enqueue_many(puts, now=when.now))
        except QueueIsFull as refused:
            full = refused
        if not block:
            raise Full
        return await self._room.store(puts, full, deadline)

    def _presented(
        self, answers: Sequence[Enqueued], values: Sequence[T], drift: float
    ) -> list[QueueMessage[T]]:
        if type(answers) is AlikeAnswers:
            return present_alike(answers, values, drift)
        codec = self._policies.codec_policy
        return [
            replace(shown(answer.message, codec, drift), duplicate=True)
            if answer.fate is Fate.DUPLICATE
            else present_value(answer.message, item, drift, dropped=answer.fate is Fate.DROPPED)
            for answer, item in zip(answers, values, strict=True)
        ]


def _version_of(answers: Sequence[Enqueued]) -> int:
    return (answers if type(answers) is AlikeAnswers else answers[0]).settings_version


def _pause_after(answers: Sequence[Enqueued]) -> float:
    return 0.0 if type(answers) is AlikeAnswers else max([answer.delay for answer in answers])
