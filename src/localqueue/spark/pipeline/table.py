"""One Delta table: which files it has, how far it is, and commits that happen once.

A commit carries, beside its files, the position of every journal that it moves on, as app
transactions of Delta Lake. Whoever reads a position and commits the next one on the same handle is
told when somebody else was faster, and has changed nothing then.

The library's own ``compact`` must not be used on these tables: it forgets app transactions, and
two of them at the same time leave every row there twice. Everything here that takes files away says
so under one name, ``REWRITES``, of which only one at a time succeeds.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
)
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import Field
from deltalake.transaction import AddAction, RemoveAction

from localqueue.errors import StoreUnsupported
from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.lake_errors import lake_errors
from localqueue.spark.pipeline.location import Location
from localqueue.spark.pipeline.log_trimming import LogTrimmer
from localqueue.spark.pipeline.places import Feed, Place, Positions

REWRITES = "localqueue/rewrites"
VACUUMED = "localqueue/vacuumed"
"""When it was last vacuumed, in seconds since 1970."""
TRIES = 3
"""How often an object store is asked for the same commit, beside what the library asks again."""
_MARK = "localqueue.commit"
"""What a commit is known by to the one who made it."""
SCHEMA_VERSION = "localqueue.schemaVersion"
_STATISTICS = "delta.dataSkippingStatsColumns"
"""Which columns have bounds; without it readers look at those of the first 32 columns only."""

_AFTER_COMMITS = PostCommitHookProperties(cleanup_expired_logs=False)
"""To look for what is expired is to look at every file of the log, and that with each commit."""
_PROPERTIES = {
    # A checkpoint of the log costs as much as a few commits and bounds what an open has to read.
    "delta.checkpointInterval": "25",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}


class Table:
    """A table as it was when it was opened, or last refreshed or written through this object.

    One thread uses it at a time.
    """

    def __init__(self, name: str, location: Location, delta: DeltaTable) -> None:
        self.name = name
        self.location = location
        self._delta = delta
        self._trimmer = LogTrimmer(location, delta.version())

    def __repr__(self) -> str:
        return f"Table({self.name!r}, version={self.version})"

    # --- looking ----------------------------------------------------------------------------------
    @property
    def version(self) -> int:
        return self._delta.version()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    @property
    def schema_version(self) -> int:
        """The layout's version; 0 for a table that no pipeline has made."""
        text = self.properties.get(SCHEMA_VERSION, "0")
        return int(text) if text.isdecimal() else 0

    @property
    def is_of_a_pipeline(self) -> bool:
        """Whether pipelines have made it, be it as a view, and not a stranger."""
        return self.schema_version > 0

    @property
    def properties(self) -> dict[str, str]:
        return self._delta.metadata().configuration

    def refresh(self) -> None:
        """See what others have committed."""
        with lake_errors(f"reading the log of the table {self.name}"):
            self._delta.update_incremental()

    def position(self, feed: Feed, place: Place) -> int:
        """Up to which seq this journal is in the table; 0 when nothing is."""
        return self._delta.transaction_version(feed.application(place)) or 0

    def positions(self, feed: Feed, places: Iterable[Place]) -> dict[Place, int]:
        return {place: seq for place in places if (seq := self.position(feed, place))}

    def files(self, predicate: str | None = None) -> list[str]:
        """The names of its files; those that may have a row for which the predicate holds.

        The predicate is SQL over the columns that the log keeps the bounds of, such as
        ``seq > 100 AND at < '2026-01-31T00:00:00Z'``.
        """
        with lake_errors(f"reading the log of the table {self.name}"):
            uris = self._delta.file_uris(file_pruning_predicate=predicate)
        return [self.location.relative(uri) for uri in uris]

    def file_list(self) -> pa.Table:
        """One row per file: path, size_bytes, num_records, and ``min.x``, ``max.x`` of columns."""
        return pa.table(self._delta.get_add_actions(flatten=True))

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The newest commits first, as far as the log has them."""
        return self._delta.history(limit)

    # --- committing -------------------------------------------------------------------------------
    def append(self, files: Sequence[DataFile], feed: Feed, positions: Positions) -> bool:
        """Add the files and move on to these positions, in one commit.

        False, and nothing is changed, when somebody has committed for one of these places since
        this object last looked: it has looked again by then, and ``positions`` tells anew.
        """
        return self._commit([_added(file) for file in files], _moves(feed, positions))

    def version_of(self, application: str) -> int:
        """The version that a commit last gave this name; 0 when none did."""
        return self._delta.transaction_version(application) or 0

    def append_for(self, files: Sequence[DataFile], versions: Mapping[str, int]) -> bool:
        """Add the files and give these names their versions, in one commit; False as above."""
        return self._commit([_added(file) for file in files], _transactions(versions))

    def replace(
        self, files: Sequence[DataFile], definition: Definition, versions: Mapping[str, int]
    ) -> bool:
        """Put the files in the place of all others, and give these names their versions, in one
        commit; False as for ``rewrite``.

        The columns are those of the definition then, and no others.
        """
        moves = {REWRITES: self.version_of(REWRITES) + 1, **versions}
        return self._commit(
            [_added(file) for file in files], _transactions(moves), columns=definition.schema
        )

    def rewrite(
        self,
        removed: Sequence[str],
        added: Sequence[DataFile],
        *,
        feed: Feed | None = None,
        positions: Positions | None = None,
        same_rows: bool = False,
    ) -> bool:
        """Put files in the place of others, in one commit; False as for ``append``.

        False also when somebody else rewrote the table since this object last looked.
        ``same_rows`` says that the rows are the same ones, only in other files.
        """
        at = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(name, not same_rows, at) for name in removed
        ]
        actions += [_added(file, changes=not same_rows) for file in added]
        done = self._delta.transaction_version(REWRITES) or 0
        moves = [Transaction(REWRITES, done + 1)]
        if feed is not None and positions is not None:
            moves += _moves(feed, positions)
        return self._commit(actions, moves)

    def _commit(
        self,
        actions: list[AddAction | RemoveAction],
        moves: list[Transaction],
        *,
        columns: pa.Schema | None = None,
    ) -> bool:
        """``columns`` take the place of the table's, and the actions that of all its files."""
        mode: Literal["append", "overwrite"] = "append" if columns is None else "overwrite"
        schema = self._delta.schema() if columns is None else Schema.from_arrow(columns)
        before, mark = self.version, uuid.uuid4().hex
        properties = CommitProperties(custom_metadata={_MARK: mark}, app_transactions=moves)
        with lake_errors(f"committing to the table {self.name}"):
            for tries_left in reversed(range(TRIES)):
                try:
                    self._delta.create_write_transaction(
                        actions,
                        mode,
                        schema,
                        commit_properties=properties,
                        post_commithook_properties=_AFTER_COMMITS,
                    )
                except (DeltaError, OSError):
                    self._delta.update_incremental()
                    if self.version > before:
                        # An object store's answer may be lost on its way; or the library asks again
                        # then, and finds that somebody was faster: itself.
                        since = self._delta.history(self.version - before)
                        return any(commit.get(_MARK) == mark for commit in since)
                    # Nobody was faster: it is the lake that failed.
                    if self.location.is_local or not tries_left:
                        raise
                else:
                    self._delta.update_incremental()
                    break
        self._trimmer.committed(self.version)
        return True

    # --- looking after it -------------------------------------------------------------------------
    def evolve(self, definition: Definition) -> None:
        """Add the columns that the definition has and the table does not.

        StoreUnsupported, and nothing changed, when the table's layout is a newer release's, or is
        not one that this definition could have had.
        """
        self._check_layout(definition)
        with lake_errors(f"adding columns to the table {self.name}"):
            try:
                self._add_what_is_missing(definition)
            except CommitFailedError:
                # Another pipeline may be at the same.
                self._delta.update_incremental()
                self._check_layout(definition)
                self._add_what_is_missing(definition)

    def _check_layout(self, definition: Definition) -> None:
        found, there = self.schema_version, self.schema
        if found > definition.version:
            raise StoreUnsupported(
                f"the table {self.name} in {self.location} has layout {found}, and this release"
                f" writes layout {definition.version}; use the newer release, or another lake"
            )
        for field in definition.schema:
            index = there.get_field_index(field.name)
            if index >= 0 and not _alike(there.field(index).type, field.type):
                raise StoreUnsupported(
                    f"the column {field.name} of the table {self.name} in {self.location} is"
                    f" {there.field(index).type}, and this release writes {field.type}"
                )

    def _add_what_is_missing(self, definition: Definition) -> None:
        names, properties = self.schema.names, self.properties
        missing = [field for field in definition.schema if field.name not in names]
        if missing:
            self._delta.alter.add_columns(_fields(pa.schema(missing)))
            self._delta.update_incremental()
        wanted = _properties(definition)
        changed = {name: text for name, text in wanted.items() if properties.get(name) != text}
        if changed:
            self._delta.alter.set_table_properties(changed, raise_if_not_exists=False)
            self._delta.update_incremental()

    def set_property(self, name: str, value: str) -> bool:
        """Keep a text with the table; False as for ``append``."""
        before = self.version
        with lake_errors(f"writing a property of the table {self.name}"):
            try:
                self._delta.alter.set_table_properties({name: value}, raise_if_not_exists=False)
            except CommitFailedError:
                self._delta.update_incremental()
                if self.version == before:
                    raise
                return False
            self._delta.update_incremental()
        return True

    def vacuum(self, *, hours: int = 24, pretend: bool = False) -> list[str]:
        """Delete files that no commit of the last hours names; which ones.

        Also those of tasks that were lost or came second. A pipeline's batch must not run longer
        than ``hours``: its files look the same until they are committed.
        """
        with lake_errors(f"cleaning up the table {self.name}"):
            gone = self._delta.vacuum(
                hours, dry_run=pretend, enforce_retention_duration=False, full=True
            )
            self._delta.update_incremental()
        if not pretend:
            self._commit([], [Transaction(VACUUMED, int(time.time()))])
        return sorted(set(gone))

    @property
    def vacuumed_at(self) -> int:
        """When ``vacuum`` last ran, in seconds since 1970; 0 when it never did."""
        return self._delta.transaction_version(VACUUMED) or 0


def create_table(location: Location, definition: Definition) -> None:
    """Make the table if there is none; whoever comes second finds it."""
    with lake_errors(f"creating the table {definition.name}"):
        if DeltaTable.is_deltatable(location.uri, dict(location.options)):
            return
        try:
            DeltaTable.create(
                location.uri,
                definition.schema,
                mode="ignore",
                name=definition.name,
                description=definition.description,
                configuration={**_PROPERTIES, **_properties(definition)},
                storage_options=dict(location.options),
                raise_if_key_not_exists=False,
            )
        except CommitFailedError:
            if not DeltaTable.is_deltatable(location.uri, dict(location.options)):
                raise


def _properties(definition: Definition) -> dict[str, str]:
    return {
        SCHEMA_VERSION: str(definition.version),
        _STATISTICS: ",".join(definition.statistics),
        **dict(definition.properties),
    }


def _added(file: DataFile, *, changes: bool = True) -> AddAction:
    return AddAction(
        file.path, file.size, {}, int(time.time() * 1000), changes, json.dumps(file.statistics)
    )


def _transactions(versions: Mapping[str, int]) -> list[Transaction]:
    return [Transaction(name, version) for name, version in versions.items()]


def _moves(feed: Feed, positions: Positions) -> list[Transaction]:
    return [Transaction(feed.application(place), seq) for place, seq in positions.items()]


def _fields(schema: pa.Schema) -> list[Field]:
    return Schema.from_arrow(schema).fields


def _alike(there: pa.DataType, ours: pa.DataType) -> bool:
    """The library may answer with the large or view variant of a type."""
    return Schema.from_arrow(pa.schema([("x", there)])) == Schema.from_arrow(
        pa.schema([("x", ours)])
    )
