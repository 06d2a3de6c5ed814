"""``import localqueue`` loads little: no optional library, no tenacity, no asyncio."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires

import pytest

HEAVY = {"asyncio", "tenacity", "importlib.metadata", "email", "http", "multiprocessing", "pytest"}
"""What is loaded when something asks for it, and not before."""

IMPORT_NAMES = {
    "pyyaml": "yaml", "protobuf": "google.protobuf", "grpcio": "grpc", "bubus": "bubus",
    "grpcio-status": "grpc_status", "googleapis-common-protos": "google.rpc",
    "opentelemetry-api": "opentelemetry", "prometheus-client": "prometheus_client",
    "adbc-driver-manager": "adbc_driver_manager", "adbc-driver-sqlite": "adbc_driver_sqlite",
    "adbc-driver-postgresql": "adbc_driver_postgresql",
}  # fmt: skip
"""How a distribution is imported, where that is not its name."""


def optional_libraries() -> set[str]:
    """What the extras of this package would bring, by import name."""
    names = set()
    for requirement in requires("localqueue") or ():
        if "extra ==" in requirement:
            name = requirement.split(";")[0].split("[")[0].strip(" <>=~!.,0123456789")
            names.add(IMPORT_NAMES.get(name, name))
    return names - {"localqueue"}


def loaded_by(code: str) -> set[str]:
    """The modules that a new interpreter has after running this."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


def test_importing_localqueue_loads_nothing_heavy_and_no_optional_library() -> None:
    loaded = loaded_by("import localqueue; localqueue.PersistentQueue('jobs')")

    assert "localqueue.queue" in loaded
    assert sorted(loaded & (HEAVY | optional_libraries())) == []


@pytest.mark.parametrize(
    ("use", "module"),
    [
        ("localqueue.AsyncNotification", "asyncio"),
        ("localqueue.AwaitableQueue", "asyncio"),
        ("localqueue.PersistentQueue('jobs').aio", "localqueue.aio"),
        ("localqueue.__version__", "importlib.metadata"),
    ],
)
def test_what_is_heavy_is_loaded_when_it_is_asked_for(use: str, module: str) -> None:
    assert module in loaded_by(f"import localqueue; {use}")


def test_the_extras_are_known_to_this_test() -> None:
    assert {"typer", "lmdb", "psycopg", "pyspark", "yaml", "pydantic"} <= optional_libraries()
