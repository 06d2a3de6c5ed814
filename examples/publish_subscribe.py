"""A topic whose subscribers come and go: each has its own pace, its own failures, its own past.

python examples/publish_subscribe.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from localqueue import (
    DynamicFanoutSubscriptions,
    Journal,
    PersistentQueue,
    PublishSubscribeRouting,
    SQLiteQueueStore,
)


def read_all(queue: PersistentQueue[Any]) -> list[Any]:
    """What waits for this subscriber, acknowledged."""
    if queue.empty():
        return []
    messages = queue.get_messages(100)
    queue.ack_many(messages)
    return [message.value for message in messages]


def main(folder: Path) -> None:
    store = SQLiteQueueStore(folder / "news.sqlite3")
    news: PersistentQueue[str] = PersistentQueue(
        "news",
        store=store,
        # One stored text, and a position for each subscriber.
        routing_policy=PublishSubscribeRouting("cursor"),
        subscription_policy=DynamicFanoutSubscriptions(),
        # So that somebody who comes late can begin with the first headline.
        journal_policy=Journal(payloads=True),
    )
    news.subscribe("web")
    news.subscribe("mail")
    for headline in ("one", "two", "three"):
        news.put(headline)

    web, mail = news.subscriber_queue("web"), news.subscriber_queue("mail")
    print("web reads", read_all(web))

    first = mail.get_message()
    mail.dead_letter(first, error="the mail server refused it")
    print("mail fails with", first.value, "and goes on with", read_all(mail))
    print(
        "its dead letters:",
        [dead.value for dead in mail.dead_letters()],
        "- web's:",
        len(web.dead_letters()),
    )

    news.subscribe("archive", start="earliest")
    news.subscribe("ticker")
    news.put("four")
    print("archive came late and reads", read_all(news.subscriber_queue("archive")))
    print("ticker began with", read_all(news.subscriber_queue("ticker")))

    news.unsubscribe("mail")
    news.put("five")
    print("subscribers now:", ", ".join(news.subscribers()))
    print("waiting:", {name: news.subscriber_queue(name).qsize() for name in news.subscribers()})
    store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
