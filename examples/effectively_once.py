"""Work that takes effect once: a ledger, a stored result, and mail that a relay sends afterwards.

python examples/effectively_once.py
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

from localqueue import (
    EffectivelyOnceDelivery,
    PersistentQueue,
    ReturnStoredResult,
    TransactionalOutboxCommit,
)
from localqueue.commits.envelopes import outbox_envelopes
from localqueue.idempotency import SQLiteIdempotencyStore
from localqueue.workers import Worker


class MailServer:
    """The relay: called after the acknowledgement, and again until it returns."""

    def __init__(self) -> None:
        self.is_up = False

    def send(self, envelope: dict[str, Any]) -> None:
        if not self.is_up:
            raise ConnectionError("the mail server is down")
        print(f"mail for {envelope['dedupe_key']}: {envelope['result']['text']}")


def charge(order: dict[str, Any]) -> dict[str, Any]:
    """Decides, and does nothing outside: what should happen is in the result."""
    print("charging order", order["id"])
    return {"text": f"you paid {order['amount']}"}


def main(folder: Path) -> None:
    path, server = folder / "orders.sqlite3", MailServer()
    ledger = SQLiteIdempotencyStore(path)  # the file of the queue: one transaction for all
    outbox = TransactionalOutboxCommit(relay=server.send)
    policy = EffectivelyOnceDelivery(ledger, ReturnStoredResult(), outbox)
    with PersistentQueue[Any]("orders", store_path=path, delivery_policy=policy) as orders:
        for amount in (5, 500):  # the producer repeats itself, and gets the amount wrong
            orders.put({"id": 7, "amount": amount}, dedupe_key="order-7")
            summary = Worker(orders, charge).run(until_empty=True)
            print(f"{summary.done} done, {len(list(outbox_envelopes(orders)))} to be sent")
        record = ledger.load("orders:order-7")
        print("the ledger says", record and (record.status, record.metadata["result"]))

        server.is_up = True
        Worker(orders, charge).run(until_empty=True)  # every worker sends what was left
        print(f"{len(list(outbox_envelopes(orders)))} to be sent")
    ledger.close()


if __name__ == "__main__":
    logging.disable()  # that the mail server is down is a warning with a traceback
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
