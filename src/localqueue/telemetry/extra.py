"""Libraries that come with the extra ``metrics``, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from localqueue.errors import ConfigurationError


def import_extra(module: str, distribution: str) -> ModuleType:
    """The module; ConfigurationError, which says what to install, when it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{distribution} is not installed; it comes with the extra 'metrics':"
            " pip install './localqueue[metrics]'"
        ) from error
