"""The settings in force, as a queue object sees them: the row in the store decides."""

from __future__ import annotations

import sys
import warnings

from localqueue.calls.attachment import Attachment
from localqueue.calls.face import Face
from localqueue.errors import SettingsOverwritten
from localqueue.stores.settings import QueueSettings


class InForce:
    """Asks for them as seldom as possible, and notices when another process wrote them."""

    def __init__(self, attachment: Attachment, face: Face) -> None:
        self._attachment = attachment
        self._face = face

    async def known(self) -> QueueSettings:
        """As this object last saw them."""
        attachment = self._attachment
        if attachment.settings is None and attachment.when is None:
            # Opening writes what the user configured.
            await self._face.open()
        if attachment.settings is None:
            attachment.settings = await self._read()
        return QueueSettings() if attachment.settings is None else attachment.settings[0]

    async def now(self) -> QueueSettings:
        """As they are."""
        found = await self._read()
        return QueueSettings() if found is None else found[0]

    async def notice(self) -> None:
        """They were changed: look, and warn once if what the user configured was overwritten."""
        attachment = self._attachment
        attachment.settings = await self._read()
        if attachment.settings is None or attachment.warned:
            return
        in_force = attachment.settings[0].as_dict()
        changed = {
            name: in_force[name]
            for name, value in attachment.policies.explicit_settings.items()
            if in_force[name] != value
        }
        if changed:
            attachment.warned = True
            warnings.warn(
                f"queue {attachment.name!r}: settings were written elsewhere and act now:"
                f" {changed}",
                SettingsOverwritten,
                stacklevel=_outside(),
            )

    async def _read(self) -> tuple[QueueSettings, int] | None:
        name = self._attachment.name
        return await self._face.ask(lambda store: store.settings(name))


def _outside() -> int:
    """The stack level of the user's own line, seen from the caller of this function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("localqueue."):
        level, frame = level + 1, frame.f_back
    return level
