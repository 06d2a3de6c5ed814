"""A proxy in front of an object store that fails now and then, as they do over a network.

Some requests are answered by 500 or 503 before the store sees them, and some answers are lost: the
store has done what was asked, and whoever asked is not told. It is a process of its own, because
the Delta library keeps other threads from running while it waits:

    python -m tests.pipeline.unsteady PORT FAILING LOSING
"""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.faults.nursery import environment

ASKED = "/-/happened"
"""Where the test asks, and says whose answer is to be lost."""
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


class Proxy(ThreadingHTTPServer):
    """On loopback. ``happened`` counts what it did to requests."""

    daemon_threads = True

    def __init__(self, port: int, *, failing: float, losing: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = port
        self.failing, self.losing = failing, losing
        self.happened: Counter[str] = Counter()
        self.lost: re.Pattern[str] | None = None
        self._chance = random.Random(7)
        self._choosing = threading.Lock()

    def fate(self, request: str) -> str:
        """``done``, ``failed`` unseen, ``broken`` when it was done, or ``lost`` then."""
        with self._choosing:
            luck = self._chance.random()
            if self.lost is not None and self.lost.search(request):
                self.lost = None
                found = "lost on purpose"
            elif luck < self.failing:
                found = "failed"
            elif luck < self.failing + self.losing / 2:
                found = "broken"
            elif luck < self.failing + self.losing:
                found = "lost"
            else:
                found = "done"
            self.happened[found] += 1
            return found

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _pass_on(self) -> None:
        body = self._body()
        if self.path == ASKED:
            if body:
                self.server.lost = re.compile(body.decode())
            self._answer(200, {}, json.dumps(self.server.happened).encode())
            return
        fate = self.server.fate(f"{self.command} {self.path}")
        if fate == "failed":
            self._answer(random.choice((500, 503)), {}, b"")
            return
        status, headers, answer = self._ask(body)
        if fate == "broken":
            self._answer(500, {}, b"")
            return
        if fate.startswith("lost"):
            # Reset, not closed: what was sent may be lost on the way too.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.close_connection = True
            self.connection.close()
            return
        self._answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        store = http.client.HTTPConnection("127.0.0.1", self.server.store, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
            headers["Content-Length"] = str(len(body))
            store.request(self.command, self.path, body, headers)
            answer = store.getresponse()
            kept = dict(answer.getheaders())
            return answer.status, kept, answer.read()
        finally:
            store.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        size = str(len(body))
        for name, value in headers.items():
            if name.lower() == "content-length" and self.command == "HEAD":
                size = value
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """It is quiet."""


class Unsteady:
    """The proxy's process, seen from a test."""

    def __init__(self, address: str) -> None:
        self.address = address

    def lose_once(self, request: str) -> None:
        """The answer to the next request that has the pattern is lost: ``PUT .*/some/path``."""
        self._ask(request.encode())

    @property
    def happened(self) -> Counter[str]:
        """How many requests were done, have failed, or whose answers were lost."""
        return Counter(self._ask(b""))

    def _ask(self, body: bytes) -> dict[str, int]:
        asked = urllib.request.Request(self.address + ASKED, data=body, method="PUT")
        with urllib.request.urlopen(asked) as answer:
            found: dict[str, int] = json.load(answer)
            return found


@contextmanager
def unsteady(port: int, *, failing: float = 0.0, losing: float = 0.0) -> Iterator[Unsteady]:
    """In front of a store at this port; so many requests fail, and so many answers are lost."""
    command = [sys.executable, "-m", __spec__.name, str(port), str(failing), str(losing)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    with process.stdout as said:
        try:
            yield Unsteady(said.readline().strip())
        finally:
            process.terminate()
            process.wait()


def main(port: str, failing: str, losing: str) -> None:
    proxy = Proxy(int(port), failing=float(failing), losing=float(losing))
    sys.stdout.write(f"http://127.0.0.1:{proxy.server_address[1]}\n")
    sys.stdout.flush()
    proxy.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
