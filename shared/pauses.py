"""Pauses between tries: each is twice as long as the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def doubling(first: float, longest: float) -> Iterator[float]:
    """Seconds to wait before the second try, before the third, and so on without end; never more than `longest`."""
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)
