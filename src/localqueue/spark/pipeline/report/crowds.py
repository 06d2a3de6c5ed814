"""Who was there: the workers of some spans, told apart as far as that is known.

``minutes`` has them as HyperLogLog sketches, see ``hll``. A sketch of up to some hundred names
keeps a number for each of them, so that workers of several queues and minutes are counted once. A
larger one does not; then the greatest of the counts is taken.
"""

from __future__ import annotations

from collections.abc import Iterable

from localqueue.spark.pipeline.hll import numbers_of

Crowd = frozenset[int | str]
"""Something for each worker that is equal for the same worker only."""

NOBODY: Crowd = frozenset()


def crowd_of(sketch: bytes | None) -> Crowd:
    """The workers of a sketch; nobody when it does not tell them apart."""
    return frozenset(numbers_of(sketch)) if sketch else NOBODY


def united(several: Iterable[Crowd]) -> Crowd:
    return NOBODY.union(*several)
