"""What is noted is read again as it was, up to the first byte that is not as it was written."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localqueue.errors import StoreUnsupported
from localqueue.stores.sqlite.daybook.entries import (
    Acks,
    Entry,
    Leases,
    Puts,
    decode,
    encode,
    encode_call,
    renumbered,
    size,
)

SALT = 0x12345678
times = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.integers(1, 2**63 - 1)
names = st.none() | st.text(max_size=20)
queues = st.integers(1, 2**31)
KIND = 4 + struct.calcsize("<IQdI")
"""Where an entry says what it is."""


def same_length(*columns: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[list[Any], ...]]:
    return st.integers(1, 6).flatmap(
        lambda n: st.tuples(*(st.lists(one, min_size=n, max_size=n) for one in columns))
    )


puts = st.builds(
    Puts, numbers, times, queues, st.lists(st.binary(max_size=40), min_size=1, max_size=6)
)
leases = st.builds(
    Leases, numbers, times, queues, st.lists(numbers, min_size=1, max_size=6), times,
    names, names, names,
)  # fmt: skip


@st.composite
def acks(draw: st.DrawFn) -> Acks:
    ended, tokens, created_at, positions = draw(same_length(numbers, numbers, times, times))
    seq, at, queue, leased_at, worker = draw(st.tuples(numbers, times, queues, times, names))
    return Acks(seq, at, queue, ended, tokens, created_at, positions, leased_at, worker)


@st.composite
def books(draw: st.DrawFn) -> list[Entry]:
    """Entries that follow on each other."""
    seq = draw(st.integers(1, 2**40))
    found: list[Entry] = []
    for entry in draw(st.lists(puts | leases | acks(), min_size=1, max_size=8)):
        found.append(entry._replace(seq=seq))
        seq += size(entry)
    return found


def written(entries: list[Entry], salt: int = SALT, *, lasts: bool = False) -> list[bytes]:
    parts = []
    for entry in entries:
        salt, data = encode(entry, salt, lasts=lasts)
        parts.append(data)
    return parts


def read(data: bytes, salt: int = SALT, after: int = 0) -> list[Entry]:
    return [plain(entry) for entry, _ in decode(data, salt, after)]


def plain(entry: Entry) -> Entry:
    """One sequence is as good as another."""
    fields = (tuple(f) if isinstance(f, list | tuple | range) else f for f in entry)
    return type(entry)(*fields)  # type: ignore[arg-type]


@given(books(), st.booleans())
def test_every_entry_is_read_as_it_was_written(entries: list[Entry], lasts: bool) -> None:
    data = b"".join(written(entries, lasts=lasts))

    assert read(data + bytes(100)) == [plain(entry) for entry in entries]
    assert {flag for _, flag in decode(data, SALT, 0)} == {lasts}


@given(books(), st.integers(1, 200))
def test_a_book_that_is_read_in_parts_has_the_same_entries(
    entries: list[Entry], at_first: int
) -> None:
    before, data = encode_call(entries, SALT, lasts=False)
    _, rest = encode_call(
        [entries[-1]._replace(seq=entries[-1].seq + size(entries[-1]))], before, lasts=False
    )
    data += rest + bytes(100)
    asked: list[int] = []

    def grown(n: int) -> bytes:
        asked.append(n)
        return data[:n]

    found = [plain(entry) for entry, _ in decode(data[:at_first], SALT, 0, grown)]

    assert found[:-1] == [plain(entry) for entry in entries]
    assert all(n <= len(data) for n in asked)


@given(books(), st.data())
def test_what_is_cut_short_ends_with_the_last_entry_that_is_whole(
    entries: list[Entry], draw: st.DataObject
) -> None:
    parts = written(entries)
    data = b"".join(parts)
    cut = draw.draw(st.integers(0, len(data) - 1))
    damaged = data[:cut] + draw.draw(st.sampled_from([b"", bytes(len(data) - cut)]))

    # Zeros may be what was cut off.
    whole = [n for n in range(len(parts) + 1) if damaged.startswith(b"".join(parts[:n]))]
    assert read(damaged) == [plain(entry) for entry in entries[: whole[-1]]]


@given(books(), st.data())
def test_a_byte_that_changed_ends_it_before_its_entry(
    entries: list[Entry], draw: st.DataObject
) -> None:
    parts = written(entries)
    hit = draw.draw(st.integers(0, len(parts) - 1))
    at = draw.draw(st.integers(0, len(parts[hit]) - 1))
    bits = draw.draw(st.integers(1, 255))
    damaged = bytearray(parts[hit])
    damaged[at] ^= bits

    found = read(b"".join([*parts[:hit], damaged, *parts[hit + 1 :]]))

    assert found == [plain(entry) for entry in entries[:hit]]


@given(books(), books())
def test_what_is_left_of_an_older_generation_does_not_count(
    older: list[Entry], newer: list[Entry]
) -> None:
    seq = older[-1].seq + size(older[-1])
    newer = renumbered(newer, seq - newer[0].seq)
    data = b"".join(written(newer))

    found = read(data + b"".join(written(older))[len(data) :], after=seq - 1)

    assert found == [plain(entry) for entry in newer]


@given(books(), st.data())
def test_an_entry_counts_only_behind_the_one_that_it_was_written_behind(
    older: list[Entry], draw: st.DataObject
) -> None:
    """A power cut took back which events are used: the next ones have the same, and other times."""
    n = draw.draw(st.integers(1, len(older)))
    other = draw.draw(st.integers(0, n - 1))
    older = [entry._replace(at=0.0) for entry in older]
    newer = [entry._replace(at=float(at == other)) for at, entry in enumerate(older[:n])]
    data = b"".join(written(newer))

    found = read(data + b"".join(written(older))[len(data) :])

    assert found == [plain(entry) for entry in newer]


@given(st.lists(books(), min_size=1, max_size=4), st.data())
def test_what_one_call_does_counts_as_a_whole_or_not_at_all(
    calls: list[list[Entry]], draw: st.DataObject
) -> None:
    seq, before, parts = 1, SALT, []
    for call in calls:
        call[:] = renumbered(call, seq - call[0].seq)
        seq = call[-1].seq + size(call[-1])
        before, data = encode_call(call, before, lasts=False)
        parts.append(data)
    whole = draw.draw(st.integers(0, len(calls) - 1))
    cut = draw.draw(st.integers(0, len(parts[whole]) - 1))

    found = read(b"".join(parts[:whole]) + parts[whole][:cut])

    assert found == [plain(entry) for call in calls[:whole] for entry in call]


@given(books())
def test_what_was_written_with_another_salt_does_not_count(entries: list[Entry]) -> None:
    assert read(b"".join(written(entries)), salt=SALT + 1) == []


@given(books())
def test_what_the_tables_have_already_does_not_count(entries: list[Entry]) -> None:
    data = b"".join(written(entries))

    assert read(data, after=entries[0].seq) == []
    assert read(data, after=entries[0].seq - 1) == [plain(entry) for entry in entries]


@pytest.mark.parametrize("kind", [0, 4, 15])
@pytest.mark.parametrize("lasts", [False, True])
def test_an_entry_of_an_unknown_kind_is_for_another_release(kind: int, lasts: bool) -> None:
    _, known = encode(Puts(1, 0.0, 1, [b"1"]), SALT, lasts=lasts)
    rest = known[4:KIND] + bytes([kind | (known[KIND] & 0xF0)]) + known[KIND + 1 :]
    unknown = struct.pack("<I", crc32(rest, SALT)) + rest

    with pytest.raises(StoreUnsupported, match=f"an entry of kind {kind}"):
        read(unknown)


@given(books(), st.integers(1, 1000))
def test_renumbered_entries_speak_of_each_other_as_before(entries: list[Entry], shift: int) -> None:
    first = entries[0].seq

    def moved(seqs: Any) -> list[int]:
        return [seq + shift if seq >= first else seq for seq in seqs]

    for old, new in zip(entries, renumbered(entries, shift), strict=True):
        assert new.seq == old.seq + shift
        assert (new.at, new.queue, size(new)) == (old.at, old.queue, size(old))
        if isinstance(old, Leases | Acks) and isinstance(new, Leases | Acks):
            assert [*new.numbers] == moved(old.numbers)
        if isinstance(old, Acks) and isinstance(new, Acks):
            assert [*new.tokens] == moved(old.tokens)
