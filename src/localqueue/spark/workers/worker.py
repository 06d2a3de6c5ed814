"""``run_on_spark``: a worker whose handlers run on Spark executors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from localqueue.checks import check_count, check_seconds
from localqueue.errors import ConfigurationError, StoreError, WorkerStopped
from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from localqueue.resilience.circuit_breaker import Breaker, CircuitBreaker
from localqueue.resilience.rate_limiter import Limiter, RateLimit
from localqueue.rule import Backoff
from localqueue.spark.sessions.registration import register
from localqueue.spark.workers.answers import Unloadable
from localqueue.spark.workers.batch_parcel import NOTHING
from localqueue.spark.workers.batch_size import BatchSize
from localqueue.spark.workers.handler_task import HandlerTask, plain
from localqueue.spark.workers.jobs import Jobs, jobs_of
from localqueue.spark.workers.lanes import Lanes, unloadable
from localqueue.workers.execution import Execution
from localqueue.workers.liveness import Liveness
from localqueue.workers.parcel import unpack, unpack_error
from localqueue.workers.returned import refuse_generator_function
from localqueue.workers.shift import Shift
from localqueue.workers.source import Sources
from localqueue.workers.summary import Summary
from localqueue.workers.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_SIZE = 1000


class _OtherOptions(TypedDict, total=False):
    """What is handed to ``Worker`` as it is."""

    max_tries: int | None
    backoff: Backoff | float | None
    dead_letter_on_failure: bool | None
    release_delay: float | None
    min_interval: float | None
    rate_limit: RateLimit | Limiter | None
    circuit_breaker: CircuitBreaker | Breaker | None
    worker_id: str | None
    drain_timeout: float
    on_progress: Callable[[QueueMessage[Any], str], object] | None


class WorkerOptions(_OtherOptions, total=False):
    """What ``SparkWorker`` takes as ``Worker`` does."""

    timeout: float | None


def run_on_spark(
    queue: PersistentQueue[Any] | Iterable[PersistentQueue[Any]],
    handler: Callable[[Any], Any],
    *,
    spark: SparkSession | None = None,
    batch_size: int = BATCH_SIZE,
    batches: int | None = None,
    until_empty: bool = False,
    handle_signals: bool | None = None,
    **options: Unpack[WorkerOptions],
) -> Summary:
    """Run ``handler`` on Spark executors for the messages of a queue; what was done.

    The driver leases, executors call the handler, the driver settles: only the driver touches the
    store. Everything else is as with ``Worker``: failed messages come back later or become dead
    letters, leases are held while handlers run, SIGINT and SIGTERM drain, and a queue that promises
    effectively-once keeps it. It returns when it is told to stop or, with ``until_empty``, when the
    queue is. ``spark``, ``batch_size``, ``batches`` and the ``options`` are those of SparkWorker.
    """
    worker = SparkWorker(
        queue, handler, spark=spark, batch_size=batch_size, batches=batches, **options
    )
    return worker.run(until_empty, handle_signals)


class SparkWorker(Worker):
    """A worker whose handlers run on executors of Spark, in batches side by side.

    The handler may be any function that cloudpickle can send, also a lambda or a coroutine
    function; its results and errors are pickled on their way back. In it ``current_message()``
    knows the message, its attempt and whether it should end. A batch is one Spark task: messages
    behind a handler that takes long go back to the queue, and other batches go on.

    When a task dies, its messages run again in smaller batches; only one that was alone in its
    task, and had begun, is charged with the crash. Spark's own second attempt at a task calls no
    handler.
    """

    def __init__(
        self,
        queues: PersistentQueue[Any] | Iterable[PersistentQueue[Any]],
        handler: Callable[[Any], Any],
        *,
        spark: SparkSession | None = None,
        batch_size: int = BATCH_SIZE,
        batches: int | None = None,
        timeout: float | None = None,
        **options: Unpack[_OtherOptions],
    ) -> None:
        """``spark`` is the active session unless given, classic or Spark Connect.

        ``batch_size`` is how many messages a task gets at most: it gets as many as it runs in a
        second. ``batches`` is how many run side by side, some more than there are cores
        unless given. ``timeout`` is how long a handler may run. The other options are those of
        ``Worker``.
        """
        refuse_generator_function(handler)
        _refuse_what_spark_decides(options)
        self._session = _session(spark)
        self._jobs = jobs_of(self._session)
        self.batch_size = check_count("batch_size", batch_size, least=1)
        self.time_limit = None if timeout is None else check_seconds("timeout", timeout, zero=False)
        if batches is None:
            batches = _more_than(self._jobs.cores)
        super().__init__(
            queues,
            plain(handler),
            kind="thread",
            concurrency=check_count("batches", batches, least=1),
            # What is leased for a lane that waits is enough: ahead of that it would lie for long.
            prefetch=0,
            **options,
        )
        self._pickled = _pickled(self.handler)

    def __repr__(self) -> str:
        names = ", ".join(queue.name for queue in self.queues)
        return f"SparkWorker({names}, batches={self.concurrency})"

    def _is_inline(self) -> bool:
        return False

    def _make_crew(
        self,
        shift: Shift,
        sources: Sources,
        execution: Execution,
        liveness: Liveness,
        until_over: contextlib.ExitStack,
    ) -> Lanes:
        register(self._session)
        desk = self._jobs.desk()
        if desk is not None:
            until_over.callback(desk.close)
        task = HandlerTask(self._pickled, self.time_limit, None if desk is None else desk.address)
        _try(self._jobs, task)
        # What is removed when it is leased would be lost with its batch.
        alone = any(source.removes for source in sources)
        size = None if alone else BatchSize(self.batch_size)
        names = ", ".join(sources.names)
        description = f"queue {names}"
        lanes = Lanes(
            shift, execution, liveness, self._jobs, task, desk, size, self._waiting, description
        )
        until_over.callback(lanes.stop_waiting)
        return lanes

    def _waiting(self) -> int:
        try:
            return sum([queue.stats().ready for queue in self.queues])
        except StoreError:
            # It is only about how the last ones are shared.
            return self.batch_size * self.concurrency


def _refuse_what_spark_decides(options: Mapping[str, object]) -> None:
    instead = {
        "concurrency": "batches says how many batches run side by side",
        "prefetch": "batch_size says how many messages a task gets",
        "kind": "handlers run in the Python processes of executors",
    }
    for name in options.keys() & instead.keys():
        raise ConfigurationError(f"there is no {name} on Spark: {instead[name]}")


def _more_than(cores: int) -> int:
    """So many batches that no core waits while one is settled and the next is leased."""
    return cores + max(1, cores // 4)


def _session(given: SparkSession | None) -> SparkSession:
    if given is not None:
        return given
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    from localqueue.spark.sessions.spark_session import session

    return session()


def _pickled(handler: Callable[[Any], Any]) -> bytes:
    from pyspark import cloudpickle

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    try:
        return dumps(handler)
    except Exception as error:
        raise ConfigurationError(
            f"the handler cannot be sent to executors: {error}; make what it needs inside of it,"
            " such as connections, queues and locks"
        ) from error


def _try(jobs: Jobs, task: HandlerTask) -> None:
    """One job without messages: whatever is wrong with the handler or with Spark is seen now."""
    try:
        answer = unpack(jobs.run(task, NOTHING))
    except Exception as error:
        raise WorkerStopped(f"Spark runs no jobs: {error}") from error
    if isinstance(answer, Unloadable):
        raise unloadable(unpack_error(answer.error))
