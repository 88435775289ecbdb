"""A pace lets those who come at once go on one after the other."""

from __future__ import annotations

import asyncio


class Pace:
    """Callers of `turn` go on at least so many seconds apart, in the order in which they came. Used on one loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0  #: when the next one may go on, by the loop's clock

    async def turn(self) -> None:
        """Return when it is the caller's turn: at once, unless others came shortly before."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._seconds
        if at > now:
            await asyncio.sleep(at - now)
