"""Public ids and journal positions: 16 hex digits of the file and 16 of seq."""

from __future__ import annotations

import re
import secrets
import struct
from bisect import bisect_right
from collections.abc import Sequence

from localqueue.errors import StoreCorrupt

_IS_BITS = re.compile(r"[0-9a-f]{16}").fullmatch
# Below 2**63: SQLite has no larger integers.
_IS_ID = re.compile(r"[0-9a-f]{16}[0-7][0-9a-f]{15}").fullmatch
_CUT = "-"


class Identity:
    """Which bits the file had from which seq on; a restored backup continues with new ones."""

    __slots__ = ("_bits", "_from")

    def __init__(self, rows: list[tuple[int, str]]) -> None:
        if not rows or not all(isinstance(bits, str) and _IS_BITS(bits) for _, bits in rows):
            raise StoreCorrupt("the identity of the file is damaged; nothing was changed")
        self._from = [from_seq for from_seq, _ in rows]
        self._bits = [bits for _, bits in rows]

    @property
    def bits(self) -> str:
        """Those of now."""
        return self._bits[-1]

    def public(self, seq: int) -> str:
        if len(self._bits) == 1:
            return f"{self._bits[0]}{seq:016x}"
        return f"{self._bits[bisect_right(self._from, seq) - 1]}{seq:016x}"

    def publics(self, seqs: Sequence[int]) -> list[str]:
        if len(self._bits) > 1 or not seqs:
            return [self.public(seq) for seq in seqs]
        # All in one text, which is cut in pieces: a third of formatting them one by one.
        bits = self._bits[0]
        digits = struct.pack(f">{len(seqs)}q", *seqs).hex(_CUT, 8)
        return (bits + digits.replace(_CUT, _CUT + bits)).split(_CUT)

    def seq(self, public: str) -> int | None:
        """The seq of a public id or position; None when it is not of this file."""
        if not _IS_ID(public):
            return None
        seq = int(public[16:], 16)
        position = bisect_right(self._from, seq) - 1 if len(self._from) > 1 else 0
        return seq if public[:16] == self._bits[position] else None

    def seqs(self, publics: Sequence[str]) -> list[int] | None:
        """The seqs of these public ids; None when one of them is not of this file."""
        first = self.seq(publics[0])
        if first is None or len(publics) == 1:
            return None if first is None else [first]
        run = range(first, min(first + len(publics), 2**63))
        # Most follow each other: making the ids anew is faster than reading them.
        if list(publics) == self.publics(run):
            return list(run)
        seqs = [seq for public in publics if (seq := self.seq(public)) is not None]
        return seqs if len(seqs) == len(publics) else None


def new_bits() -> str:
    return secrets.token_hex(8)
