"""The command line: ``localqueue COMMAND …``. Needs ``pip install "./localqueue[cli]"``.

0 is success, 1 an error of the library, 2 a command that cannot be meant, 130 an end by Ctrl-C.
"""

from __future__ import annotations

import sys

MISSING = 'localqueue: the command line needs {}; write pip install "./localqueue[cli]"'


def main() -> None:
    """Run the command that the process was started with, and end the process."""
    try:
        from localqueue.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(MISSING.format(error.name), file=sys.stderr)
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
