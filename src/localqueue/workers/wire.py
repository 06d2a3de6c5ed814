"""Frames of bytes over a socket between a worker and a process of its own."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_LENGTH = struct.Struct("!Q")
_TOGETHER = 64 * 1024
"""Up to so many bytes a frame is copied, and sent with its length at once."""


class Wire:
    """Sends and receives frames. Any thread may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()

    @classmethod
    def of(cls, descriptor: int) -> Wire:
        """The end that this process was started with; it goes no further than here."""
        end = socket.socket(fileno=descriptor)
        end.setblocking(True)
        end.set_inheritable(False)
        return cls(end)

    def send(self, frame: bytes) -> None:
        """OSError when there is nobody at the other end."""
        length = _LENGTH.pack(len(frame))
        with self._sending:
            if len(frame) <= _TOGETHER:
                self._socket.sendall(length + frame)
            else:
                self._socket.sendall(length)
                self._socket.sendall(frame)

    def receive(self) -> bytes | None:
        """The next frame; None when the other end is gone, in the middle of one as well."""
        length = self._read(_LENGTH.size)
        return None if length is None else self._read(_LENGTH.unpack(length)[0])

    def _read(self, size: int) -> bytes | None:
        try:
            part = self._socket.recv(size)
            if len(part) == size:
                return part
            # Made as it comes: a torn length must not ask for all the memory there is.
            whole = bytearray(part)
            while part and len(whole) < size:
                part = self._socket.recv(min(size - len(whole), 1 << 20))
                whole += part
        except ConnectionError:
            return None
        return bytes(whole) if len(whole) == size else None

    def has_something(self, timeout: float) -> bool:
        """Wait until there is something to receive, or until it is over."""
        self._socket.settimeout(timeout)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except OSError:
            pass
        finally:
            self._socket.setblocking(True)
        return True

    def is_waiting(self) -> bool:
        """Whether there is something to receive now, be it that the other end is gone."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def is_broken(self) -> bool:
        """Whether the other end is gone while it had nothing to say."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def say_no_more(self) -> None:
        """The other end receives None from now on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def is_over(self, timeout: float) -> bool:
        """Wait until the other end is gone, whatever it says before."""
        try:
            self._socket.settimeout(timeout)
            while self._socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        self._socket.close()


def connected() -> tuple[Wire, socket.socket]:
    """A wire, and its other end for another process."""
    here, there = socket.socketpair()
    # Whatever socket.setdefaulttimeout() says.
    here.setblocking(True)
    return Wire(here), there
