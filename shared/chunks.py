"""Long lists in pieces, as `itertools.batched` of Python 3.12 has them: no call to Redis names too much at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in their order, so many at a time; the last piece may be shorter."""
    return (items[start : start + size] for start in range(0, len(items), size))
