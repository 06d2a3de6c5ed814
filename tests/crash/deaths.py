"""A process that has everything imported and forks workers, each of which dies at a failpoint.

Asked on its standard input, a line of JSON each time; it answers how the worker ended. It opens no
file itself, so nothing of SQLite crosses a fork.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Self

from localqueue import failpoints, workers
from localqueue.message import QueueMessage
from localqueue.testing.commit_contract import Worker
from tests.crash.commit_cases import RESULT, opened

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class Deaths:
    """The side that asks for them."""

    def __init__(self) -> None:
        import localqueue

        product = Path(localqueue.__file__).parents[1]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.crash.deaths"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(product), str(ROOT)])},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with self._process:
            self._process.wait(PATIENCE)

    def deliver(
        self,
        folder: Path,
        policy: str,
        layout: str,
        *,
        die_at: int | None = None,
        defect: str | None = None,
        fails: bool = False,
        kind: str | None = None,
    ) -> int:
        """Let a worker take one message, and kill itself at this moment; how it ended.

        Without a ``kind`` it is the one of the commit contract, which does no more than it has to;
        with one it is the product's, which works until nothing is left.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = json.dumps([str(folder), policy, layout, die_at, defect, fails, kind])
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process ended"
        return int(answer)


def moments(folder: Path) -> list[str]:
    """What the worker that lived has reached."""
    return (folder / "moments").read_text().split()


# --- the side that forks --------------------------------------------------------------------------
def _nothing(*_: Any, **__: Any) -> list[Any]:
    return []


def _work(
    folder: str,
    policy: str,
    layout: str,
    die_at: int | None,
    defect: str | None,
    fails: bool,
    kind: Any,
) -> None:
    reached: list[str] = []

    def listener(point: str) -> None:
        if len(reached) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        reached.append(point)

    def handler(_: QueueMessage[Any]) -> Any:
        if fails:
            raise ValueError("the handler does not want to")
        return RESULT

    async def coroutine(_: Any) -> Any:
        return handler(_)

    if defect is not None:
        module, name, method = defect.split(".")
        broken = __import__(f"localqueue.commits.{module}", fromlist=[name])
        setattr(getattr(broken, name), method, _nothing)
    with opened(Path(folder), policy, layout) as queue, failpoints.listening(listener):
        if kind is None:
            Worker(queue).work(handler, final=True)
        else:
            given = coroutine if kind == "asyncio" else handler
            workers.Worker(queue, given, kind=kind, max_tries=1).run(until_empty=True)
    (Path(folder) / "moments").write_text("\n".join(reached))


def _serve() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                _work(*json.loads(line))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # noqa: T201


if __name__ == "__main__":
    _serve()
