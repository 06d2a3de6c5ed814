"""An S3 server as a process of its own, with a bucket ``lake``."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 60.0


@contextmanager
def s3_server() -> Iterator[int]:
    """Its port on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _make_bucket(server, f"http://127.0.0.1:{port}/lake")
        yield port
    finally:
        server.terminate()
        server.wait()


def storage_options(address: str) -> dict[str, str]:
    """What the Delta library needs to use a server at this address."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def _make_bucket(server: subprocess.Popen[bytes], address: str) -> None:
    """As soon as the server answers."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(address, method="PUT")).close()
        except OSError:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return
