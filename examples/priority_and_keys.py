"""Two kinds of order: what is urgent first, and what belongs together one after the other.

python examples/priority_and_keys.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from localqueue import OrderingKeys, PersistentQueue, PriorityOrdering, SQLiteQueueStore


def urgent_first(store: SQLiteQueueStore) -> None:
    queue: PersistentQueue[str] = PersistentQueue(
        "alarms", store=store, ordering_policy=PriorityOrdering()
    )
    queue.put("weekly report")
    queue.put("disk at 80 %", priority=3)
    queue.put("fire", priority=9)
    queue.put("fire drill", priority=9, delay=3600)

    print("by priority:", [message.value for message in queue.get_messages(10)])
    print("not before its time:", queue.stats().delayed)


def one_account_in_order(store: SQLiteQueueStore) -> None:
    queue: PersistentQueue[str] = PersistentQueue(
        "accounts", store=store, ordering_policy=OrderingKeys()
    )
    for account in ("ada", "bob"):
        for step in ("open", "deposit", "close"):
            queue.put(step, ordering_key=account)

    # However many ask at once, each account has one message out at a time.
    turn = 1
    while not queue.empty():
        batch = queue.get_messages(10)
        print(f"turn {turn}:", [f"{message.ordering_key} {message.value}" for message in batch])
        for message in batch:
            if turn == 1 and message.ordering_key == "ada":
                queue.release(message, error="the bank is closed")  # ada's others wait behind it
            else:
                queue.ack(message)
        turn += 1


def main(folder: Path) -> None:
    store = SQLiteQueueStore(folder / "order.sqlite3")
    urgent_first(store)
    one_account_in_order(store)
    store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
