"""Reading b-trees page by page: around what is damaged, and saying what is missing."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from localqueue.stores.sqlite.operations.image import Image
from localqueue.stores.sqlite.operations.records import Damage, read_record, read_varint

TABLE_LEAF, TABLE_INTERIOR, INDEX_LEAF, INDEX_INTERIOR = 13, 5, 10, 2
DEEPEST = 40
LARGEST_PAYLOAD = 64 * 1024 * 1024
"""Larger than any row of ours: a size beyond it is damage."""
LOCKED_BYTE = 0x40000000
"""SQLite never writes the page that holds it: its locks are there."""

Key = tuple[Any, ...]
"""What orders the rows of a tree: the rowid, or the columns of an index."""


class Row(NamedTuple):
    rowid: int | None
    values: list[Any]
    page: int


class Lost(NamedTuple):
    """A part of a tree that cannot be reached: rows after ``low`` up to ``high``."""

    low: Key | None
    high: Key | None
    page: int
    why: str = ""

    def covers(self, key: Key) -> bool:
        return (self.low is None or key > self.low) and (self.high is None or key <= self.high)


class Tree:
    """A table, or an index, by its first page. ``width`` is how many columns order an index.

    What is ``sealed`` has a checksum of its own: its rows are read also where two of them claim the
    same page, and the checksum tells afterwards which one was right.
    """

    def __init__(
        self,
        name: str,
        root: int | None,
        *,
        rowid: bool,
        width: int | None = None,
        sealed: bool = False,
    ) -> None:
        self.name = name
        self.root = root
        self.rowid = rowid
        self.width = width
        self.sealed = sealed
        self.lost: list[Lost] = []
        self.damaged: list[tuple[int | None, str]] = []
        """Rows that are there and cannot be read: the rowid if it is known, and why."""

    def key(self, row: Row) -> Key:
        if self.rowid:
            return (row.rowid,)
        return tuple((_RANK[type(part)], part) for part in row.values[: self.width])


_RANK = {type(None): 0, int: 1, float: 1, str: 2, bytes: 3}
"""As SQLite orders them: numbers before text before bytes."""


class Pages:
    """The pages of a file as b-trees; remembers which of them belong to something."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._used = {LOCKED_BYTE // image.page_size + 1}
        self._spilled: set[int] = set()
        """Pages that rows reach to; by damage also those of another row, so this proves less."""
        self._doubted: set[int] = set()
        """Pages that a tree led to, but that hold something else than it should find there."""
        self.free_is_known = False
        """Whether the pages that are free are known: old rows are still written there."""

    def rows(self, tree: Tree) -> Iterator[Row]:
        """All rows that can be reached, in order; what cannot is noted in the tree."""
        if tree.root is None:
            tree.lost.append(Lost(None, None, 0, "nothing tells where it begins"))
            return
        yield from self._walk(tree, tree.root, Lost(None, None, tree.root), 0)

    def orphans(self, trees: list[Tree]) -> Iterator[tuple[Tree, Row]]:
        """Rows on pages that nothing leads to, each with every tree that may have lost it.

        When all trees are walked, and it is known what is free, then such a page was lost by one of
        them. Otherwise it may be a free one, and only what fills a known gap is taken.
        """
        for number in range(1, self._image.count + 1):
            if number in self._used and number not in self._doubted:
                continue
            data = self._image.page(number)
            kind = data[100 if number == 1 else 0]
            if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR):
                continue
            rowid = kind == TABLE_LEAF
            rows = list(self._cells(number, data, rowid=rowid))
            for tree in trees:
                if tree.rowid == rowid:
                    for row in _in_order(tree, rows):
                        if self.free_is_known or self._fills(tree, row):
                            yield tree, row

    def doubt(self, number: int) -> None:
        """Something led to this page that is damaged, or the page is: it is looked at again."""
        self._doubted.add(number)

    def note_free_pages(self, first: int) -> None:
        trunk = first
        while trunk:
            if trunk in self._used or not 1 < trunk <= self._image.count:
                return
            data = self._image.page(trunk)
            following, n = struct.unpack_from(">II", data)
            if n > self._image.usable // 4 - 2:
                return
            leaves = struct.unpack_from(f">{n}I", data, 8)
            if any(not 1 < leaf <= self._image.count for leaf in leaves):
                return
            self._used.add(trunk)
            self._used.update(leaves)
            trunk = following
        self.free_is_known = True

    def _fills(self, tree: Tree, row: Row) -> bool:
        return any(lost.covers(tree.key(row)) for lost in tree.lost)

    # --- down a tree --------------------------------------------------------------------------
    def _walk(self, tree: Tree, number: int, bounds: Lost, depth: int) -> Iterator[Row]:
        """``bounds`` is what the pages above say of this one: which keys it may hold."""
        try:
            if number in self._used or depth > DEEPEST:
                raise Damage(f"page {number} belongs to something else")
            data, pointers = self._open(tree, number, depth)
            leaf = data[_start(number)] in (TABLE_LEAF, INDEX_LEAF)
            children = [] if leaf else self._children(tree, number, data, pointers, bounds)
        except Damage as damage:
            tree.lost.append(bounds._replace(page=number, why=str(damage)))
            return
        self._used.add(number)
        if leaf:
            yield from self._leaf(tree, number, data, pointers, bounds)
            return
        low = bounds.low
        for child, row in children:
            high = bounds.high if row is None else tree.key(row)
            yield from self._walk(tree, child, Lost(low, high, child), depth + 1)
            low = high
            if row is not None and not tree.rowid:
                yield row

    def _open(self, tree: Tree, number: int, depth: int) -> tuple[bytes, list[int]]:
        if not 0 < number <= self._image.count:
            raise Damage(f"page {number} is outside the file")
        data = self._image.page(number)
        kinds = (TABLE_LEAF, TABLE_INTERIOR) if tree.rowid else (INDEX_LEAF, INDEX_INTERIOR)
        if data[_start(number)] not in kinds:
            raise Damage(f"page {number} is no page of such a tree")
        pointers = _pointers(data, _start(number), self._image.usable)
        if depth and not pointers:
            raise Damage(f"page {number} is empty")
        return data, pointers

    def _children(
        self, tree: Tree, number: int, data: bytes, pointers: list[int], bounds: Lost
    ) -> list[tuple[int, Row | None]]:
        """The pages below, each with the row or the key that ends it."""
        found: list[tuple[int, Row | None]] = []
        before = bounds.low
        for pointer in pointers:
            if not 0 < pointer <= self._image.usable - 5:
                raise Damage(f"page {number} points outside itself")
            (child,) = struct.unpack_from(">I", data, pointer)
            if tree.rowid:
                row = Row(read_varint(data, pointer + 4)[0], [], number)
            else:
                row = self._read(number, data, pointer + 4, rowid=False, sealed=False)
            key = tree.key(row)
            if (before is not None and key <= before) or not bounds.covers(key):
                raise Damage(f"the keys of page {number} are not in their order")
            before = key
            found.append((child, row))
        found.append((struct.unpack_from(">I", data, _start(number) + 8)[0], None))
        return found

    def _leaf(
        self, tree: Tree, number: int, data: bytes, pointers: list[int], bounds: Lost
    ) -> Iterator[Row]:
        before = bounds.low
        sound = True
        for pointer in pointers:
            rowid = None
            try:
                if tree.rowid:
                    rowid = self._cell_rowid(number, data, pointer)
                    if not bounds.covers((rowid,)):
                        rowid = None
                        raise Damage(f"a row on page {number} belongs to another page")
                row = self._read(number, data, pointer, rowid=tree.rowid, sealed=tree.sealed)
                key = tree.key(row)
                if (before is not None and key <= before) or not bounds.covers(key):
                    raise Damage(f"a row on page {number} is not in its order")
            except Damage as damage:
                tree.damaged.append((rowid, str(damage)))
                sound = False
                continue
            before = key
            yield row
        if not sound:
            self.doubt(number)
            tree.lost.append(bounds._replace(page=number, why=f"page {number} is damaged"))

    # --- cells --------------------------------------------------------------------------------
    def _cells(self, number: int, data: bytes, *, rowid: bool) -> Iterator[Row]:
        """The rows of a page that stands alone, as far as they can be read."""
        start = _start(number)
        try:
            pointers = _pointers(data, start, self._image.usable)
        except Damage:
            return
        skip = 4 if data[start] == INDEX_INTERIOR else 0
        for pointer in pointers:
            try:
                yield self._read(number, data, pointer + skip, rowid=rowid, sealed=True)
            except Damage:
                continue

    def _cell_rowid(self, number: int, data: bytes, pointer: int) -> int:
        if not 0 < pointer < self._image.usable:
            raise Damage(f"page {number} points outside itself")
        _, at = read_varint(data, pointer)
        return read_varint(data, at)[0]

    def _read(self, number: int, data: bytes, at: int, *, rowid: bool, sealed: bool) -> Row:
        if not 0 < at < self._image.usable:
            raise Damage(f"page {number} points outside itself")
        size, at = read_varint(data, at)
        own = None
        if rowid:
            own, at = read_varint(data, at)
        return Row(own, read_record(self._payload(data, at, size, rowid, sealed)), number)

    def _payload(self, data: bytes, at: int, size: int, rowid: bool, sealed: bool) -> bytes:
        """The bytes of a row, also those that spill to other pages."""
        usable = self._image.usable
        if not 0 < size <= LARGEST_PAYLOAD:
            raise Damage("a row has a size that cannot be")
        least = (usable - 12) * 32 // 255 - 23
        most = usable - 35 if rowid else (usable - 12) * 64 // 255 - 23
        local = size
        if size > most:
            local = least + (size - least) % (usable - 4)
            local = local if local <= most else least
        if at + local + (4 if local < size else 0) > usable:
            raise Damage("a row reaches beyond its page")
        parts, rest = [data[at : at + local]], size - local
        following = struct.unpack_from(">I", data, at + local)[0] if rest else 0
        spilled: dict[int, None] = {}
        while rest:
            if not 1 < following <= self._image.count or following in self._used:
                raise Damage(f"a part of a row should be on page {following}, which is not its own")
            if following in spilled or (following in self._spilled and not sealed):
                raise Damage(f"page {following} cannot be a part of two rows")
            spilled[following] = None
            more = self._image.page(following)
            take = min(rest, usable - 4)
            parts.append(more[4 : 4 + take])
            rest -= take
            (following,) = struct.unpack_from(">I", more)
        self._spilled.update(spilled)
        return b"".join(parts)


def _in_order(tree: Tree, rows: list[Row]) -> list[Row]:
    """As many of them as follow each other; what breaks the order has a damaged key."""
    last: list[Key] = []
    ends: list[int] = []
    before: list[int | None] = []
    keys = [tree.key(row) for row in rows]
    for n, key in enumerate(keys):
        # The longest chain that ends here prolongs the longest that ends with a smaller key.
        at = bisect_left(last, key)
        before.append(ends[at - 1] if at else None)
        last[at : at + 1] = [key]
        ends[at : at + 1] = [n]
    chain: list[Row] = []
    found = ends[-1] if ends else None
    while found is not None:
        chain.append(rows[found])
        found = before[found]
    return chain[::-1]


def _start(number: int) -> int:
    """The first page has the file's header in front."""
    return 100 if number == 1 else 0


def _pointers(data: bytes, start: int, usable: int) -> list[int]:
    """Where the cells of a page are."""
    n = struct.unpack_from(">H", data, start + 3)[0]
    first = start + (12 if data[start] in (TABLE_INTERIOR, INDEX_INTERIOR) else 8)
    if first + 2 * n > usable:
        raise Damage("a page says that it holds more than it can")
    return list(struct.unpack_from(f">{n}H", data, first))
