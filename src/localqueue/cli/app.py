"""The command ``localqueue``: its groups, and what becomes of errors.

A group of commands is one folder: its ``app`` has a ``typer.Typer`` that is added here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from localqueue.cli.output import note, told
from localqueue.cli.pipeline import app as pipeline
from localqueue.errors import ConfigurationError, InvalidArgument, LocalQueueError, WrongType
from localqueue.stores.masking import masked

# The class of all complaints about arguments. Its home has changed with the releases of typer.
_CLICK_ERROR = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="localqueue",
    help="Durable queues: what happened in them, as tables, reports and replays.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Boxes cut off the names of options on a narrow terminal.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(pipeline.app, name="pipeline")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("localqueue"))
        raise typer.Exit


@app.callback()
def everything(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks, and what Spark writes.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    told.debug = debug


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. Errors are one line on stderr, without any password."""
    told.debug = False
    try:
        answer = app(list(arguments), prog_name="localqueue", standalone_mode=False)
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except typer.Abort:
        return 130
    except Exception as error:
        if told.debug:
            raise
        return _failed(error)
    return answer if isinstance(answer, int) else 0


def _failed(error: Exception) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        # A group without a command. Some releases have shown the help already.
        if str(error):
            print(error, file=sys.stderr)
        return 2
    if isinstance(error, _CLICK_ERROR):
        note(f"{error.format_message()}{_help_of(error)}")  # type: ignore[attr-defined]
        return 2
    note(_sentence(error))
    return 2 if isinstance(error, ConfigurationError | InvalidArgument | WrongType) else 1


def _help_of(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f" (see {context.command_path} --help)" if context is not None else ""


def _sentence(error: Exception) -> str:
    text = " ".join(masked(str(error)).split()) or type(error).__name__
    if isinstance(error, LocalQueueError):
        return text
    return f"{type(error).__name__}: {text} (--debug shows more)"
