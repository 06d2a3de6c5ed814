"""Arguments that several commands of ``localqueue pipeline`` take."""

from __future__ import annotations

from typing import Annotated

import typer

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE_URL", help="The store: sqlite:////path/to/file, or a path.")
]
LakeArgument = Annotated[
    str, typer.Argument(metavar="LAKE", help="A folder, or the URL of an object store (s3://…).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Lines of JSON instead of tables.")]
MasterOption = Annotated[
    str | None,
    typer.Option(metavar="MASTER", help="Spark's master, such as local[2] or spark://host:7077."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From this time on: 2026-01-31T08:00, or 24h for a day ago."),
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Up to this time, which is as for --since.")
]
