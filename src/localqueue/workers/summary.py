"""What a worker has done."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Summary:
    """How the deliveries of one run ended, each counted once."""

    done: int = 0
    """Handled, and acknowledged; what an earlier delivery had done already is counted too."""
    failed: int = 0
    """Failed, and will be delivered again."""
    dead: int = 0
    """Dead letters: failed or crashed too often, rejected, or not to be decoded."""
    snoozed: int = 0
    """To be delivered again later, as the handler or another delivery of its key asked for."""
    cancelled: int = 0
    """Cancelled by somebody while the handler ran."""
    crashed: int = 0
    """The process of the handler died, and the message comes back; the last crash is in dead."""
    released: int = 0
    """Interrupted because the worker stopped, or not committed: a store was busy or full."""
    returned: int = 0
    """Leased and given back before a handler began."""
    lost: int = 0
    """The lease was over before the handler: its result was dropped."""

    def as_dict(self) -> dict[str, int]:
        return {each.name: getattr(self, each.name) for each in fields(self)}
