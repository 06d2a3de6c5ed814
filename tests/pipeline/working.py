"""Queues that are at work: what they do is in their journal."""

from __future__ import annotations

from typing import Any

from localqueue import Journal, PersistentQueue


def open_queue(url: str, name: str = "jobs") -> PersistentQueue[Any]:
    """One whose journal keeps what was put."""
    return PersistentQueue(name, store=url, journal_policy=Journal(payloads=True))


def work(queue: PersistentQueue[Any], messages: int) -> None:
    """Put, lease, and end each: every fifth is released once, every seventh is a dead letter."""
    queue.put_many([{"n": n} for n in range(messages)])
    for n, message in enumerate(queue.get_messages(messages, leased_by="w1")):
        if n % 7 == 6:
            queue.dead_letter(message, error=ValueError("no"))
        elif n % 5 == 4:
            queue.release(message)
        else:
            queue.ack(message)
