"""The package as a zip file, so that executors run the driver's code without installing it."""

from __future__ import annotations

import atexit
import hashlib
import io
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_PACKAGE = "localqueue"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The same date for every entry: equal contents are equal files."""


@cache
def package_zip() -> Path:
    """A zip file of this package as it is loaded here, named after its contents.

    It is in a folder of this process alone and goes with it: Spark fetches it when the first task
    runs. The package may itself have come out of such a file.
    """
    contents = _zipped()
    folder = Path(tempfile.mkdtemp(prefix="localqueue-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{_PACKAGE}-{hashlib.sha256(contents).hexdigest()[:16]}.zip"
    path.write_bytes(contents)
    return path


def _zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, entry in _entries(files(_PACKAGE), _PACKAGE):
            info = zipfile.ZipInfo(name, _LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entry.read_bytes())
    return buffer.getvalue()


def _entries(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    """Everything that the package reads at run time, which is all but compiled code."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f"{prefix}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _entries(entry, name)
        elif not entry.name.endswith(".pyc"):
            yield name, entry
