"""Subscribers of a topic: added with a starting point, and taken away."""

from __future__ import annotations

from dataclasses import replace

from localqueue.checks import check_queue_name, check_subscriber_name
from localqueue.errors import ConfigurationError, JournalForeign, JournalTrimmed
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import SUBSCRIBED, UNSUBSCRIBED
from localqueue.stores.sqlite.verbs.log import count_unread, last_offset, trim_log, unread
from localqueue.stores.sqlite.verbs.queues import configure, make_queue, use_queue
from localqueue.stores.sqlite.verbs.sweep import expire_waiting
from localqueue.stores.sqlite.view import QueueRow, Transaction, View


def subscribe(tx: Transaction, topic_name: str, subscriber: str, start: str) -> bool:
    """Hand out to the subscriber from ``start`` on; False when it is one already."""
    check_subscriber_name(subscriber)
    topic = use_queue(tx, topic_name)
    if topic.settings.fanout is None:
        raise ConfigurationError(
            f"{topic_name!r} is not a topic; give it routing_policy=PublishSubscribeRouting()"
        )
    if any(name == subscriber for _, name, _, _ in _subscriptions(tx, topic)):
        return False
    last = last_offset(tx, topic.id)
    position = last if start == "now" else _offset_before(tx, topic, start, last)
    name = check_queue_name(f"{topic_name}.{subscriber}")
    queue = tx.queue(name)
    settings = replace(topic.settings, fanout=None, paused=False)
    if queue is None:
        queue = make_queue(tx, name, settings)
    else:
        configure(tx, name, settings.as_dict(), "worker")
    until = last if topic.settings.fanout == "copy" else None
    tx.db.execute(SQL.add_subscription, (queue.id, topic.id, subscriber, position, until))
    tx.write_messages()
    tx.db.execute(SQL.skip_what_it_has, (queue.id, topic.id, position))
    tx.db.execute(SQL.remember_keys_of_unread, (queue.id, topic.id, position, subscriber))
    tx.db.execute(SQL.set_topic, (topic.id, queue.id))
    tx.event(SUBSCRIBED, topic.id, detail={"subscriber": subscriber, "start": start, "queue": name})
    tx.forget(name)
    tx.ready.add(queue.id)
    if position < last:
        # What is published may be over by now.
        expire_waiting(tx, use_queue(tx, name))
    return True


def unsubscribe(tx: Transaction, topic_name: str, subscriber: str) -> bool:
    """Stop handing out to it; False when it was no subscriber."""
    topic = tx.queue(topic_name)
    if topic is None:
        return False
    numbers = [number for number, name, _, _ in _subscriptions(tx, topic) if name == subscriber]
    if not numbers:
        return False
    number = numbers[0]
    queue = tx.queue(tx.queue_name(number))
    assert queue is not None
    lost = count_unread(tx, queue)
    rest = unread(tx, queue)
    if rest is not None:
        tx.db.execute(SQL.forget_unread_dedupes, (queue.id, rest.topic, rest.position, rest.end))
    tx.db.execute(SQL.delete_subscription, (number,))
    tx.db.execute(SQL.forget_skipped, (number, last_offset(tx, topic.id)))
    tx.db.execute(SQL.set_topic, (None, number))
    tx.event(UNSUBSCRIBED, topic.id, detail={"subscriber": subscriber, "unread": lost})
    tx.forget(queue.name)
    trim_log(tx, topic.id)
    return True


def subscribers(view: View, topic_name: str) -> list[str]:
    topic = view.queue(topic_name)
    return [] if topic is None else [name for _, name, _, _ in _subscriptions(view, topic)]


def _subscriptions(view: View, topic: QueueRow) -> list[tuple[int, str, int, int | None]]:
    return view.db.execute(SQL.subscriptions, (topic.id,)).fetchall()


def _offset_before(tx: Transaction, topic: QueueRow, start: str, last: int) -> int:
    """The log position that belongs to a start in the past."""
    if not topic.settings.keeps_payloads:
        raise ConfigurationError(
            f"a subscriber of {topic.name!r} can start in the past only when its journal keeps"
            " payloads; give the topic journal_policy=Journal(payloads=True)"
        )
    oldest = tx.db.execute(SQL.oldest_publications, (topic.id, last, 1)).fetchone()
    before_oldest = last if oldest is None else oldest[0] - 1
    if start == "earliest":
        return before_oldest
    seq = tx.file.identity.seq(start)
    if seq is None or seq > tx.seq:
        raise JournalForeign(
            f'start must be "now", "earliest" or a position of this store, not {start!r}'
        )
    trimmed = tx.db.execute(SQL.trimmed_upto, (topic.id,)).fetchone()
    if trimmed is not None and trimmed[0] > seq:
        raise JournalTrimmed(f"publications of {topic.name!r} after this position are gone already")
    found = tx.db.execute(SQL.offset_at_seq, (topic.id, seq)).fetchone()
    return before_oldest if found is None else int(found[0])
