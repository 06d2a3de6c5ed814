"""Stores that were restored from a backup: one store, whose events have several names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import Journal, PersistentQueue
from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.feeds import claim
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.replaying.archive import stores_in
from localqueue.spark.pipeline.replaying.replay import replay
from localqueue.spark.pipeline.replaying.target import Target
from localqueue.spark.pipeline.report.status import lag_of
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.pipeline.archives import archive
from tests.pipeline.here import batch, writer_here
from tests.pipeline.journals import HERE, ended, event
from tests.pipeline.reckoning import journal_of, rows_of
from tests.pipeline.working import work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW = Place("fedcba9876543210", "0")
AGES_AGO, FAR_AHEAD = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2100))


class Restored:
    """A store, and what its backups become when they are opened."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._n = folder, 0
        self.queue = self._open()
        self.names = [self.name]

    @property
    def url(self) -> str:
        return f"sqlite:///{self._folder / f'store{self._n}.sqlite3'}"

    @property
    def name(self) -> str:
        return self.queue.store.journal_end()[:16]

    def restore(self, lost: int, lake: Lake | None = None) -> PersistentQueue[Any]:
        """Go on with a backup; so many messages came after it was made, and the lake has them."""
        assert isinstance(self.queue.store, SQLiteQueueStore)
        self.queue.store.backup(self._folder / f"store{self._n + 1}.sqlite3")
        for n in range(lost):
            self.queue.put(f"lost {self._n}.{n}")
        if lake is not None:
            archive(lake, self.queue)
        self.close()
        self._n += 1
        self.queue = self._open()
        self.queue.put(f"restored {self._n}")
        self.names.append(self.name)
        return self.queue

    def close(self) -> None:
        self.queue.close()

    def _open(self) -> PersistentQueue[Any]:
        made = PersistentQueue[Any]("jobs", store=self.url, journal_policy=Journal(payloads=True))
        if self._n == 0:
            made.put("first")
        return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path)
    yield made
    made.close()


def test_summaries_count_what_the_backup_had_once(lake: Lake) -> None:
    """Also when nobody said that the events of the lost file would come again."""
    failed = ended(9, "dead_lettered", to_state="dead", fingerprint="f", error_type="E")
    before = [event(1, "configured"), *(event(seq) for seq in range(2, 9)), failed]
    writer_here(lake).write(batch([*before, event(10), event(11)]))

    restored = writer_here(lake, NEW)
    restored.catch_up()
    restored.write(batch([*before, event(10, store=NEW.store)]))

    events = [(row["store"], row["seq"]) for row in rows_of(lake, "events")]
    assert events == [*((HERE.store, seq) for seq in range(1, 12)), (NEW.store, 10)]
    counts = [(row["store"], row["events"]) for row in rows_of(lake, "minutes")]
    assert counts == [(HERE.store, 11), (NEW.store, 1)]
    assert [row["count"] for row in rows_of(lake, "errors")] == [1]


def test_all_its_names_are_its_own_in_their_order(store: Restored, lake: Lake) -> None:
    for _ in range(4):
        store.restore(lost=2)
    events = lake.create(EVENTS)
    for name in store.names:
        claim(events, Feed(("jobs",)), name)

    with Target(store.url) as target:
        assert target.stores(events, ()) == store.names


def test_only_what_the_lake_has_under_no_name_is_behind(store: Restored, lake: Lake) -> None:
    archive(lake, store.queue)
    queue = store.restore(lost=0)
    events = lake.table(EVENTS.name)
    assert events is not None
    claim(events, Feed(), store.name)
    new = sum(event.position.startswith(store.name) for event in journal_of(queue))
    assert new

    with Target(store.url) as target:
        assert target.behind(events, ["jobs"], FAR_AHEAD) == new
    assert lag_of(lake, store.url) == new


def test_a_new_lake_has_its_events_under_all_names(
    store: Restored, lake: Lake, spark: SparkSession
) -> None:
    work(store.queue, 4)
    queue = store.restore(lost=0)
    work(queue, 4)
    pipeline = Pipeline(store.url, lake, spark=spark)
    pipeline.run()
    lives = rows_of(lake, "messages")
    assert {row["store"] for row in lives} == {*store.names}
    events = lake.table(EVENTS.name)
    assert events is not None
    assert stores_in(events) == sorted(store.names)
    shutil.rmtree((lake.location / "messages").uri)

    pipeline.run()

    assert rows_of(lake, "messages") == lives


def test_its_messages_come_back_in_the_order_of_its_names(
    store: Restored, lake: Lake, spark: SparkSession
) -> None:
    """What was lost came before what came after the restore, at whichever seq."""
    for _ in range(3):
        store.restore(lost=2, lake=lake)
    archive(lake, store.queue)
    empty(store.queue)

    done = replay(store.url, lake, since=AGES_AGO, until=FAR_AHEAD, spark=spark)

    wanted = ["first", "lost 0.0", "lost 0.1", "restored 1", "lost 1.0", "lost 1.1"]
    wanted += ["restored 2", "lost 2.0", "lost 2.1", "restored 3"]
    assert empty(store.queue) == wanted
    assert done.messages == len(wanted)


def empty(queue: PersistentQueue[Any]) -> list[Any]:
    """The values that were there."""
    messages = queue.get_messages(1000)
    queue.ack_many(messages)
    return [message.value for message in messages]


def test_the_queues_that_came_under_another_name_do_not_come_again(
    store: Restored, lake: Lake, spark: SparkSession
) -> None:
    claim(lake.create(EVENTS), Feed(("jobs",)), store.name)
    store.restore(lost=0)

    with pytest.raises(ConfigurationError, match="all queues: some would be there twice"):
        Pipeline(store.url, lake, spark=spark).run()
