"""Ways to wake consumers after a put. A notification is a hint: the message is leased as ever.

All have ``close`` and work in ``with``. A closed one is quiet: notify does nothing, and nobody is
left waiting.
"""

from localqueue.adapters.notification.asyncio_event import AsyncioNotification, AsyncNotification
from localqueue.adapters.notification.callback import CallbackNotification
from localqueue.adapters.notification.thread_event import InProcessNotification

__all__ = [
    "AsyncNotification",
    "AsyncioNotification",
    "CallbackNotification",
    "InProcessNotification",
]
