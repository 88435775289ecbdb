"""Work that a process does for ever in rounds; a round may be asked for early."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Rounds:
    """One round every so many seconds. `failing` gets the type of an error that ends one; once, until one ends well."""

    def __init__(self, seconds: float, failing: Callable[[str], None]) -> None:
        self._seconds, self._failing = seconds, failing
        self._due = asyncio.Event()  #: a round was asked for

    def look(self) -> None:
        """Begin the next round at once. On the loop."""
        self._due.set()

    async def run(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Work for ever; `work` says whether there is more to do at once. The first pause is random."""
        failing = False
        await self._pause(self._seconds * random.random())  # noqa: S311 no secret
        while True:
            try:
                while await work():
                    pass
            except Exception as error:  # noqa: BLE001 whatever it is, the next round may go well
                if not failing:
                    self._failing(type(error).__name__)
                failing = True
            else:
                failing = False
            await self._pause(self._seconds)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._due.wait()
        self._due.clear()
