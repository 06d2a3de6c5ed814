"""A handler that writes down what was loaded for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def write_down_modules(path: str) -> None:
    loaded = sorted(name for name in sys.modules if name.startswith("opentelemetry"))
    Path(path).write_text(json.dumps(loaded))
