"""A line from a task back to the driver: results that need not wait for the end of their job.

It is a convenience. Whatever is told early is in the job's own result again; where an executor
cannot reach the driver, as with Spark Connect through a firewall, everything comes with that.

    task ──connects──▶ desk: challenge ──▶ task: HMAC of it ──▶ news …      desk: ──words──▶ task
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from localqueue.spark.workers.answers import News, Word
from localqueue.stores.masking import masked
from localqueue.workers.parcel import pack, unpack
from localqueue.workers.wire import Wire

log = logging.getLogger("localqueue.spark")

_CHALLENGE = 32
_PATIENCE = 2.0
"""Seconds for a connection and for each word of its greeting."""
_SILENCE = 30.0
"""How long a desk is not called again that could not be reached."""


class DeskAddress(NamedTuple):
    """Where a task finds the desk, and what proves that it may speak there."""

    host: str
    port: int
    secret: bytes

    def __repr__(self) -> str:
        return f"DeskAddress({self.host!r}, {self.port})"


class NewsDesk:
    """The driver's end: hands each piece of news to the job that it is about."""

    def __init__(self, host: str, bind: str | None = None) -> None:
        """``host`` is what executors know this machine by; OSError when nobody can listen there."""
        self._listener = socket.create_server((bind or host, 0))
        port: int = self._listener.getsockname()[1]
        self.address = DeskAddress(host, port, secrets.token_bytes(32))
        self._jobs: dict[int, Callable[[News], object]] = {}
        self._wires: dict[int, Wire] = {}
        self._words: dict[int, list[Word]] = {}
        """For jobs that have not called yet."""
        self._speaking = threading.Lock()
        self._open: set[socket.socket] = set()
        self.is_reached = False
        """Whether any task has called: then others can do so too."""
        threading.Thread(target=self._accept, name="localqueue-news", daemon=True).start()

    def follow(self, job: int, hear: Callable[[News], object]) -> None:
        """``hear`` is called with the news about this job, in other threads; it must be quick."""
        self._jobs[job] = hear

    def forget(self, job: int) -> None:
        with self._speaking:
            self._jobs.pop(job, None)
            self._wires.pop(job, None)
            self._words.pop(job, None)

    def tell(self, word: Word) -> None:
        """As soon as the job is on the line. Never raises."""
        with self._speaking:
            wire = self._wires.get(word.job)
            if wire is None:
                self._words.setdefault(word.job, []).append(word)
            else:
                _say(wire, word)

    def close(self) -> None:
        for each in (self._listener, *list(self._open)):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(caller,), name="localqueue-news", daemon=True
            ).start()

    def _serve(self, caller: socket.socket) -> None:
        self._open.add(caller)
        try:
            # Nothing is read as news before this: whoever sends news could send a program.
            if not self._is_known(caller):
                return
            self.is_reached = True
            wire = Wire(caller)
            while (frame := wire.receive()) is not None:
                self._hear(unpack(frame), wire)
        except OSError:
            pass
        except Exception as error:
            log.error(
                "early news from an executor cannot be read (%s: %s); they come with the job",
                type(error).__name__, masked(str(error)),
            )  # fmt: skip
        finally:
            self._open.discard(caller)
            caller.close()

    def _hear(self, news: News, wire: Wire) -> None:
        with self._speaking:
            hear = self._jobs.get(news.job)
            if hear is None:
                return
            self._wires[news.job] = wire
            for word in self._words.pop(news.job, ()):
                _say(wire, word)
        hear(news)

    def _is_known(self, caller: socket.socket) -> bool:
        caller.settimeout(_PATIENCE)
        challenge = secrets.token_bytes(_CHALLENGE)
        caller.sendall(challenge)
        wanted = _proof(self.address.secret, challenge)
        proof = _exactly(caller, len(wanted))
        caller.settimeout(None)
        return hmac.compare_digest(proof, wanted)


class Reporter:
    """The task's end. From any thread, one after the other."""

    def __init__(self, address: DeskAddress) -> None:
        self._address = address
        self._wire: Wire | None = None
        self._silent_until = 0.0
        self._using = threading.Lock()

    def send(self, news: News) -> bool:
        """Whether it is on its way."""
        with self._using:
            if self._wire is None and not self._connect():
                return False
            assert self._wire is not None
            try:
                self._wire.send(pack(news))
            except OSError:
                self._hang_up()
                return False
            return True

    def words(self) -> list[Word]:
        """What was said meanwhile."""
        with self._using:
            return self._words()

    def close(self) -> None:
        with self._using:
            self._hang_up()

    def _words(self) -> list[Word]:
        words: list[Word] = []
        while self._wire is not None and self._wire.is_waiting():
            frame = self._wire.receive()
            if frame is None:
                self._hang_up()
                break
            words.append(Word(*json.loads(frame)))
        return words

    def _connect(self) -> bool:
        if time.monotonic() < self._silent_until:
            return False
        try:
            self._wire = _called(self._address)
        except OSError:
            self._silent_until = time.monotonic() + _SILENCE
            return False
        return True

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None


def _say(wire: Wire, word: Word) -> None:
    with contextlib.suppress(OSError):
        wire.send(json.dumps(word).encode())


def _called(address: DeskAddress) -> Wire:
    desk = socket.create_connection((address.host, address.port), _PATIENCE)
    try:
        desk.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        desk.sendall(_proof(address.secret, _exactly(desk, _CHALLENGE)))
        desk.settimeout(None)
        return Wire(desk)
    except BaseException:
        desk.close()
        raise


def _proof(secret: bytes, challenge: bytes) -> bytes:
    return hmac.digest(secret, b"localqueue news " + challenge, "sha256")


def _exactly(end: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = end.recv(size - len(got))
        if not part:
            raise ConnectionError("the other end is gone")
        got += part
    return got
