"""The Java that Spark runs on: found, or explained."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from localqueue.errors import ConfigurationError

OLDEST = 17
"""Spark 4 needs Java 17 or newer."""

HOW_TO_GET_IT = (
    "on Debian and Ubuntu: apt install default-jre-headless; on macOS: brew install openjdk@17;"
    " or unpack one from https://adoptium.net and set JAVA_HOME to its folder"
)

PLACES = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
"""Where package managers put it without putting it on the PATH."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def use_java() -> Path:
    """The Java that Spark will start; ConfigurationError with what to do when there is none.

    ``JAVA_HOME`` decides, else the ``PATH``, as for Spark itself. One that is found elsewhere is
    made known to Spark by setting ``JAVA_HOME`` in this process.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        return _checked(Path(home, "bin", "java"), f"JAVA_HOME is {home!r}, which")
    on_path = shutil.which("java")
    if on_path and (_version(Path(on_path)) or 0) >= OLDEST:
        return Path(on_path)
    for program in _elsewhere():
        if (_version(program) or 0) >= OLDEST:
            os.environ["JAVA_HOME"] = str(program.parent.parent)
            return program
    if on_path:
        return _checked(Path(on_path), f"the java on the PATH, {on_path},")
    raise ConfigurationError(
        f"Spark needs Java {OLDEST} or newer, and no Java was found; {HOW_TO_GET_IT}"
    )


def _checked(program: Path, what: str) -> Path:
    version = _version(program)
    if version is None:
        raise ConfigurationError(
            f"Spark needs Java {OLDEST} or newer; {what} has no java that runs; {HOW_TO_GET_IT}"
        )
    if version < OLDEST:
        raise ConfigurationError(
            f"Spark needs Java {OLDEST} or newer; {what} is Java {version}; {HOW_TO_GET_IT}"
        )
    return program


def _version(program: Path) -> int | None:
    """Its major version; None when it does not run. (macOS has a java that only says so.)"""
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return None
    found = _VERSION.search(answer.stderr)
    return int(found[1]) if found and answer.returncode == 0 else None


def _elsewhere() -> list[Path]:
    root = Path("/")
    return [
        found
        for place in PLACES
        for found in sorted(root.glob(f"{place.removeprefix('/')}/bin/java"))
    ]


if __name__ == "__main__":  # for set-up, which only wants to know
    try:
        print(use_java())  # noqa: T201
    except ConfigurationError as error:
        sys.exit(str(error))
