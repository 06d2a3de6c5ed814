"""Handlers in processes of their own: what they do to themselves happens to nobody else."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import types
from typing import Any

import pytest

from localqueue.errors import ConfigurationError, HandlerDied
from localqueue.policies import CrashLimit
from localqueue.workers import child_process, process
from localqueue.workers.parcel import pack_error, unpack_error
from localqueue.workers.summary import Summary
from localqueue.workers.worker import Worker
from tests.unit.workers import poison
from tests.unit.workers.phrases import Queue, Stage, dead_errors, eventually, working
from tests.unit.workers.poison import misbehave
from tests.unit.workers.processes import children_of, is_alive


def worker(queue: Queue, handler: Any = misbehave, **options: Any) -> Worker:
    return Worker(queue, handler, kind="process", **{"backoff": 0.0, **options})


def words(stage: Stage, beginning: str) -> list[str]:
    """What handlers told with this first word, without it."""
    told = [what.split(" ", 1) for _, what in stage.told()]
    return [one[1] for one in told if one[0] == beginning]


def hands() -> list[str]:
    """The processes for handlers that this one has."""
    told = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in told.stdout.splitlines() if "hand_program.py" in line]


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "GRACE", 0.2)


# --- poison -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("do", "how"),
    [
        ("abort", "killed by SIGABRT"),
        ("exit", "exited with status 0"),
        ("be killed", "killed by SIGKILL"),
        ("overflow", "killed by SIGSEGV"),
    ],
)
def test_a_message_that_kills_its_process_is_a_dead_letter_and_the_others_are_done(
    stage: Stage, do: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = stage.queue(crash_limit_policy=CrashLimit(2))
    queue.put_many([stage.act(name=n) for n in range(10)])
    queue.put(stage.act(do, name="poison"))
    queue.put_many([stage.act(name=n) for n in range(10, 20)])

    summary = worker(queue, concurrency=2).run(until_empty=True)

    assert (summary.done, summary.crashed, summary.dead) == (20, 1, 1)
    says = [record.getMessage() for record in caplog.records if "crash" in record.getMessage()]
    assert "crash 1) is delivered again: " in says[0]
    assert "crash 2) is a dead letter now: " in says[1]
    assert sorted(stage.names()) == list(range(20))
    (dead,) = queue.dead_letters()
    assert (dead.crashes, dead.failures) == (2, 0)
    assert dead.last_error is not None
    assert dead.last_error["type"] == "CrashLimitExceeded"
    assert how in dead.last_error["message"]


def test_only_the_message_that_ran_is_charged(stage: Stage) -> None:
    queue = stage.queue()
    gate = stage.gate()
    waiting = queue.put(stage.act("wait", name="neighbour", until=gate))
    poison_ = queue.put(stage.act("be killed"))
    after = queue.put(stage.act("wait", name="after", until=gate))

    with working(worker(queue, concurrency=2, backoff=60.0)):
        eventually(lambda: stage.names("began").count("after"))
        crashes = [m and m.crashes for m in map(queue.inspect, (waiting.id, poison_.id, after.id))]
        gate.touch()
        eventually(lambda: len(stage.names()) == 2)

    assert crashes[0] == crashes[2] == 0


def test_what_eats_all_memory_fails_and_its_process_runs_nothing_else(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act(name="before"))
    queue.put(stage.act("eat memory"))
    queue.put(stage.act(name="after"))

    summary = worker(queue, max_tries=1).run(until_empty=True)

    assert (summary.done, summary.dead) == (2, 1)
    assert dead_errors(queue) == ["MemoryError"]
    before, after = words(stage, "pid")
    assert before != after


def test_a_handler_that_is_out_of_time_is_ended_and_may_clean_up(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act("loop", name="loops"))
    queue.put_many([stage.act(name=n) for n in range(3)])

    summary = worker(queue, timeout=0.2, max_tries=1).run(until_empty=True)

    assert (summary.done, summary.dead) == (3, 1)
    assert dead_errors(queue) == ["HandlerTimeout"]
    assert stage.names("cleaned up") == ["loops"]


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("do", ["hold the GIL", "swallow everything"])
def test_a_handler_that_does_not_end_in_time_is_killed(stage: Stage, do: str) -> None:
    queue = stage.queue()
    queue.put(stage.act(do))
    queue.put(stage.act(name="after"))

    summary = worker(queue, timeout=0.2, max_tries=1).run(until_empty=True)

    assert (summary.done, summary.dead) == (1, 1)
    assert dead_errors(queue) == ["HandlerTimeout"]


@pytest.mark.usefixtures("no_patience")
def test_the_commands_of_a_handler_die_with_it(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act("run a command and hold the GIL"))

    worker(queue, timeout=0.2, max_tries=1).run(until_empty=True)

    (command,) = words(stage, "command")
    eventually(lambda: not is_alive(int(command)))


def test_what_a_handler_forked_does_not_hide_its_death(stage: Stage) -> None:
    queue = stage.queue(crash_limit_policy=CrashLimit(1))
    queue.put(stage.act("fork and be killed"))

    with working(worker(queue)) as one:
        eventually(lambda: one.summary.crashed + one.summary.dead)

    (forked,) = words(stage, "command")
    eventually(lambda: not is_alive(int(forked)))


def test_a_handler_may_have_processes_of_its_own(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act("stop a process of its own"))

    assert worker(queue).run(until_empty=True).done == 1
    assert words(stage, "stopped") == ["-15"]


@pytest.mark.usefixtures("no_patience")
def test_a_process_that_closes_its_connection_is_dead(stage: Stage) -> None:
    queue = stage.queue(crash_limit_policy=CrashLimit(1))
    queue.put(stage.act("close everything"))

    worker(queue).run(until_empty=True)

    (dead,) = queue.dead_letters()
    assert dead.last_error is not None
    assert "closed its connection" in dead.last_error["message"]


def test_a_handler_hears_why_it_should_end(stage: Stage) -> None:
    queue = stage.queue(lease_timeout=0.3)
    message = queue.put(stage.act("poll"))

    with working(worker(queue)) as one:
        eventually(lambda: stage.names("began"))
        queue.release(message.id, delay=3600.0)
        eventually(lambda: one.summary.lost)

    assert one.summary == Summary(lost=1)


# --- errors, values and results -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("do", "error", "text"),
    [
        ("strange", "Strange", "7 in there"),
        ("local", "Local", "with a lock"),
        ("broken", "Broken", "<message unavailable: RuntimeError in __str__>"),
        ("group", "ExceptionGroup", "many (2 sub-exceptions)"),
    ],
)
def test_any_error_arrives_with_its_name_and_message(
    stage: Stage, do: str, error: str, text: str
) -> None:
    queue = stage.queue()
    queue.put(stage.act(do))

    worker(queue, max_tries=1).run(until_empty=True)

    (dead,) = queue.dead_letters()
    assert dead.last_error is not None
    assert (dead.last_error["type"], dead.last_error["message"]) == (error, text)
    module = "builtins" if error == "ExceptionGroup" else poison.__name__
    assert dead.last_error["module"] == module


def test_an_error_keeps_its_class_its_cause_and_where_it_was_raised() -> None:
    def fail() -> None:
        raise poison.Strange(7, where="there") from KeyError("k")

    with pytest.raises(poison.Strange) as raised:
        fail()

    arrived = unpack_error(pickle.loads(pickle.dumps(pack_error(raised.value))))

    assert isinstance(arrived, poison.Strange)
    assert (arrived.code, str(arrived)) == (7, "7 in there")
    assert isinstance(arrived.__cause__, KeyError)
    assert "in fail" in arrived.__notes__[-1]


def test_an_error_that_cannot_be_sent_is_still_of_its_kind() -> None:
    class Missing(ModuleNotFoundError):
        exit_code = 3

    arrived = unpack_error(pack_error(Missing("No module named 'x'", name="x")))

    assert isinstance(arrived, ModuleNotFoundError)
    assert (type(arrived).__name__, str(arrived)) == ("Missing", "No module named 'x'")
    assert arrived.exit_code == 3  # type: ignore[attr-defined]


def test_a_result_that_cannot_be_sent_is_a_failure(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act("return a lock"))
    queue.put(stage.act(name="after"))

    summary = worker(queue, max_tries=1).run(until_empty=True)

    assert (summary.done, summary.dead) == (1, 1)
    (dead,) = queue.dead_letters()
    assert dead.last_error is not None
    assert dead.last_error["type"] == "InvalidResult"
    assert "return plain values" in dead.last_error["message"]


def test_large_values_and_results_go_through(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act(result="x" * 3_000_000))

    assert worker(queue).run(until_empty=True).done == 1


# --- the processes ------------------------------------------------------------------------------
def test_processes_are_started_for_messages_and_reused(stage: Stage) -> None:
    queue = stage.queue()

    with working(worker(queue, concurrency=2)) as one:
        queue.put(stage.act())
        eventually(lambda: one.summary.done == 1)
        after_one = hands()
        queue.put_many([stage.act() for _ in range(10)])
        eventually(lambda: one.summary.done == 11)

    assert len(after_one) == 1
    assert len(set(words(stage, "pid"))) <= 2
    assert hands() == []


def test_a_process_is_replaced_after_so_many_messages(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many([stage.act(name=n) for n in range(6)])

    summary = worker(queue, max_tasks_per_child=2).run(until_empty=True)

    assert summary.done == 6
    pids = words(stage, "pid")
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]


def test_a_process_that_dies_without_work_is_replaced_and_nobody_is_charged(stage: Stage) -> None:
    # Killed and not waited for: the worker may see it at any time after it has the next message.
    queue = stage.queue()

    with working(worker(queue)) as one:
        queue.put(stage.act())
        eventually(lambda: one.summary.done == 1)
        (pid,) = words(stage, "pid")
        os.kill(int(pid), signal.SIGKILL)
        queue.put(stage.act())
        eventually(lambda: one.summary.done == 2)

    assert one.summary == Summary(done=2)


def test_a_message_that_its_process_never_got_is_not_charged(stage: Stage) -> None:
    queue = stage.queue()

    with working(worker(queue)) as one:
        queue.put(stage.act())
        eventually(lambda: one.summary.done == 1)
        (pid,) = words(stage, "pid")
        os.kill(int(pid), signal.SIGSTOP)
        queue.put(stage.act())
        eventually(lambda: queue.stats().inflight == 1)
        os.kill(int(pid), signal.SIGKILL)
        eventually(lambda: one.summary.done == 2)

    assert one.summary == Summary(done=2)
    assert len(stage.names("began")) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_holds_no_files_of_the_store(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act("list files", name="files"))

    worker(queue).run(until_empty=True)

    files = next(what for _, what in stage.told() if "socket:" in what)
    assert "queue.sqlite3" not in files


def test_no_process_is_left_when_a_worker_stops_at_once(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many([stage.act("wait", until=stage.gate("never")) for _ in range(3)])
    one = worker(queue, concurrency=3).start()
    eventually(lambda: len(words(stage, "waits")) == 3)

    one.stop(now=True)
    assert one.join(20)

    assert one.summary == Summary(released=3)
    assert hands() == []
    assert queue.stats().ready == 3


# --- handlers by their names --------------------------------------------------------------------
def closure() -> Any:
    def inner(value: Any) -> None:
        """Nobody finds this from outside."""

    return inner


@pytest.mark.parametrize(
    ("handler", "because"),
    [
        (lambda value: None, "is a lambda"),
        (closure(), "exists inside a function only"),
        (poison.Holder().method, "bound to an object"),
        (poison.Holder(), "without a name"),
        (functools.partial(misbehave), "without a name"),
    ],
)
def test_a_handler_that_nobody_can_import_is_refused_when_the_worker_is_made(
    stage: Stage, handler: Any, because: str
) -> None:
    with pytest.raises(ConfigurationError, match=because):
        worker(stage.queue(), handler)


def test_a_function_that_a_class_keeps_is_a_handler(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act())

    assert worker(queue, poison.Holder.static).run(until_empty=True).done == 1


def test_a_handler_that_the_process_cannot_import_ends_the_worker_and_charges_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("only_here")
    exec("def handler(value): pass", vars(module))
    monkeypatch.setitem(sys.modules, "only_here", module)
    queue = stage.queue()
    message = queue.put("value")

    with pytest.raises(ConfigurationError, match="only_here:handler cannot be imported"):
        worker(queue, module.handler).run()

    found = queue.inspect(message.id)
    assert found is not None
    assert (found.state, found.failures, found.crashes) == ("ready", 0, 0)


def test_a_module_that_kills_who_imports_it_ends_the_worker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.folder / "deadly.py").write_text(
        f"import os\ndef handler(value): pass\nif os.getpid() != {os.getpid()}:\n    os._exit(9)\n"
    )
    monkeypatch.syspath_prepend(stage.folder)
    monkeypatch.setattr(process, "MOST_STARTS", 2)
    queue = stage.queue()
    message = queue.put("value")
    import deadly  # type: ignore[import-not-found]

    with pytest.raises(HandlerDied, match="exited with status 9 while it imported deadly:handler"):
        worker(queue, deadly.handler).run()

    found = queue.inspect(message.id)
    assert found is not None
    assert (found.state, found.failures, found.crashes) == ("ready", 0, 0)


def test_a_worker_stops_while_a_process_is_still_importing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.folder / "slow_import.py").write_text(
        "import os, time\nfrom pathlib import Path\ndef handler(value): pass\n"
        f"if os.getpid() != {os.getpid()}:\n"
        f"    Path({str(stage.gate('importing'))!r}).touch()\n    time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(stage.folder)
    queue = stage.queue()
    queue.put("value")
    import slow_import  # type: ignore[import-not-found]

    one = worker(queue, slow_import.handler).start()
    eventually(stage.gate("importing").exists)
    one.stop(now=True)
    assert one.join(20)

    assert queue.stats().ready == 1


def test_the_option_for_processes_is_for_processes(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match='max_tasks_per_child is for kind="process"'):
        Worker(stage.queue(), misbehave, max_tasks_per_child=3)


# --- programs -----------------------------------------------------------------------------------
SCRIPT = """
import os, sys
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers import Worker

def handler(value):
    print("handled", value, __name__, flush=True)

def main():
    with PersistentQueue("jobs", store=SQLiteQueueStore(sys.argv[1])) as queue:
        queue.put("one")
        print(Worker(queue, handler, kind="process").run(until_empty=True).done, flush=True)
"""


def program(stage: Stage, text: str, *start: str, **options: Any) -> subprocess.Popen[str]:
    path = stage.folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, *(start or (str(path),)), str(stage.folder / "queue.sqlite3")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(stage.folder)])},
        **options,
    )


def test_a_handler_of_the_script_that_was_started_is_imported_from_there(stage: Stage) -> None:
    with program(stage, SCRIPT + 'if __name__ == "__main__":\n    main()\n') as process:
        output, errors = process.communicate(timeout=60)

    assert errors == ""
    assert output.splitlines() == ["handled one __mp_main__", "1"]


def test_a_script_that_starts_its_worker_when_it_is_imported_is_refused(stage: Stage) -> None:
    with program(stage, SCRIPT + "main()\n") as process:
        output, errors = process.communicate(timeout=60)

    assert output == ""
    assert 'put what starts the worker below if __name__ == "__main__":' in errors
    assert stage.queue().qsize() == 1


def test_a_handler_of_a_module_needs_nothing_of_the_script(stage: Stage) -> None:
    (stage.folder / "handlers.py").write_text("def handler(value): print('handled', flush=True)\n")
    with program(stage, SCRIPT + "from handlers import handler\nmain()\n") as process:
        output, errors = process.communicate(timeout=60)

    assert errors == ""
    assert output.splitlines() == ["handled", "1"]


def test_a_program_that_was_started_as_a_module_finds_its_handler(stage: Stage) -> None:
    package = stage.folder / "package"
    package.mkdir()
    (package / "near.py").write_text("")
    text = "from . import near\n" + SCRIPT + 'if __name__ == "__main__":\n    main()\n'
    (package / "__main__.py").write_text(text)
    with program(stage, "", "-m", "package") as process:
        output, errors = process.communicate(timeout=60)

    assert errors == ""
    assert output.splitlines() == ["handled one __mp_main__", "1"]


def test_what_was_typed_in_is_refused(stage: Stage) -> None:
    with program(stage, "", "-c", SCRIPT + "main()") as process:
        _, errors = process.communicate(timeout=60)

    assert "was typed in" in errors


def test_values_and_errors_of_the_script_are_its_own_in_both_processes(stage: Stage) -> None:
    text = """
    import pickle, sys, zlib
    from dataclasses import dataclass
    from localqueue import PersistentQueue
    from localqueue.stores.sqlite.store import SQLiteQueueStore
    from localqueue.workers import Worker

    @dataclass
    class Thing:
        name: str

    class Odd(Exception):
        pass

    class Codec:
        id = "pickle"
        encode = staticmethod(pickle.dumps)
        decode = staticmethod(pickle.loads)

        def fingerprint(self, value, body):
            return zlib.crc32(body)

        def as_dict(self):
            return {"codec": self.id}

    def handler(value):
        print(value, isinstance(value, Thing), flush=True)
        raise Odd(value.name)

    if __name__ == "__main__":
        store = SQLiteQueueStore(sys.argv[1])
        with PersistentQueue("jobs", store=store, codec_policy=Codec()) as queue:
            queue.put(Thing("it"))
            Worker(queue, handler, kind="process", max_tries=1).run(until_empty=True)
            (dead,) = queue.dead_letters()
            print(dead.last_error["module"], dead.last_error["type"])
    """
    with program(stage, text) as process:
        output, _ = process.communicate(timeout=60)

    assert output.splitlines() == ["Thing(name='it') True", "__main__ Odd"]


def test_the_output_of_handlers_is_that_of_the_worker(stage: Stage) -> None:
    text = f"""
    import sys
    from localqueue import PersistentQueue
    from localqueue.stores.sqlite.store import SQLiteQueueStore
    from localqueue.workers import Worker
    from tests.unit.workers.poison import misbehave

    with PersistentQueue("jobs", store=SQLiteQueueStore(sys.argv[1])) as queue:
        queue.put({stage.act("print")!r})
        Worker(queue, misbehave, kind="process").run(until_empty=True)
    """
    with program(stage, text) as process:
        output, errors = process.communicate(timeout=60)

    assert (output, errors) == ("to the output\n", "to the errors\n")


WAITS = """
import sys
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers import Worker
from tests.unit.workers.poison import misbehave

with PersistentQueue("jobs", store=SQLiteQueueStore(sys.argv[1])) as queue:
    print(Worker(queue, misbehave, kind="process", concurrency=2).run())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_for_all_processes_lets_handlers_end(stage: Stage, number: int) -> None:
    queue = stage.queue()
    gate = stage.gate()
    queue.put_many([stage.act("wait for a command", name=n, until=gate) for n in range(2)])
    with program(stage, WAITS, start_new_session=True) as process:
        eventually(lambda: len(words(stage, "waits")) == 2)

        os.killpg(process.pid, number)
        for pid in words(stage, "waits"):
            os.kill(int(pid), number)
        gate.touch()
        output, errors = process.communicate(timeout=60)

    # The worker may say that it waits, if it has to wait for long enough to notice.
    assert [line for line in errors.splitlines() if ": stopping, waiting" not in line] == []
    assert "done=2" in output
    assert queue.stats().total == 0


@pytest.mark.parametrize("do", ["wait", "hold the GIL"])
def test_processes_die_with_their_worker(stage: Stage, do: str) -> None:
    queue = stage.queue()
    queue.put(stage.act(do, until=str(stage.gate("never"))))
    with program(stage, WAITS) as process:
        eventually(lambda: stage.names("began"))
        children = children_of(process.pid)
        assert len(children) == 2  # this one, and the keeper

        process.kill()
        process.wait(20)

        eventually(lambda: not any(map(is_alive, children)))
