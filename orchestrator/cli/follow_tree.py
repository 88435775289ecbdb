"""Following a task and its descendants, also those that are started meanwhile."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Self, TypeAlias

from ...shared import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ...shared.records import Event, Task
    from ..client import Outrider
    from .demo_approver import Approver
    from .demo_board import Board, Row

    Show: TypeAlias = Callable[[Event], Awaitable[None]]

MAX_CHILDREN = 1000  #: of one task that are shown


class Below:
    """Follows tasks and their descendants as they come to be; `async with` ends that.

    `began` is called with a task that came to be and the id of its parent, and returns what its events are told to.
    """

    def __init__(self, outrider: Outrider, began: Callable[[str, Task], Show]) -> None:
        self._outrider, self._began = outrider, began
        self._following: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)

    def follow(self, task_id: str, show: Show) -> None:
        """Tell of all events of a task, and of those of its descendants."""
        self._following[task_id] = asyncio.create_task(self._follow(task_id, show))

    async def heard(self, task_id: str, event: Event) -> None:
        """Look for children of a task that are new, where an event of it may have brought some."""
        # A task starts others by its tools; what it starts otherwise is seen when its status changes.
        if not event.type.startswith(("task.", "run.")) and event.type != events.TOOL_ENDED:
            return
        page = await self._outrider.list(parent=task_id, limit=MAX_CHILDREN)
        for child in reversed(page.tasks):
            if child.task_id not in self._following:
                self.follow(child.task_id, self._began(task_id, child))

    async def settled(self) -> None:
        """Return when all that is followed has settled."""
        done: set[str] = set()
        while left := self._following.keys() - done:  # it grows meanwhile
            for task_id in left:
                await self._following[task_id]
            done |= left

    async def caught_up(self) -> None:
        """Return when all events of the tasks that have settled were shown; do not wait for the others."""
        for task_id, task in list(self._following.items()):
            if (await self._outrider.get(task_id)).settled:
                await task

    async def _follow(self, task_id: str, show: Show) -> None:
        async for event in self._outrider.follow(task_id):
            await show(event)
            await self.heard(task_id, event)


async def follow_trees(outrider: Outrider, rows: Mapping[str, Row], board: Board, approver: Approver) -> None:
    """Tell the board of all events of some tasks (id → row) and of their descendants, until all have settled.

    What they ask is the approver's to answer.
    """
    known = dict(rows)

    async def show(task_id: str, event: Event) -> None:
        board.event(known[task_id], event)
        if event.type == "task.waiting":
            await approver.answer(known[task_id], task_id)

    def began(parent_id: str, child: Task) -> Show:
        known[child.task_id] = board.child(known[parent_id], child.agent, child.title)
        return partial(show, child.task_id)

    async with Below(outrider, began) as below:
        for task_id in rows:
            below.follow(task_id, partial(show, task_id))
        await below.settled()


async def whole(outrider: Outrider, task_id: str) -> list[Task]:
    """A task and all its descendants with their results and runs, each before those that it started."""
    return [await outrider.get(task.task_id) for task in (await outrider.tree(task_id)).flat()]
