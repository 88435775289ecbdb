"""Following trees of tasks: each task that comes to be is followed too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...shared import events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...shared.records import Task
    from ..client import Outrider
    from .approving import Approver
    from .board import Board, Row

MAX_CHILDREN = 1000  #: of one task that are shown


async def follow_trees(outrider: Outrider, rows: Mapping[str, Row], board: Board, approver: Approver) -> None:
    """Tell the board of all events of some tasks (id → row) and of their descendants, until all have settled.

    What they ask is the approver's to answer.
    """
    following: list[asyncio.Task[None]] = []

    async def follow(task_id: str, row: Row) -> None:
        known: set[str] = set()
        async for event in outrider.follow(task_id):
            board.event(row, event)
            if event.type == "task.waiting":
                await approver.answer(row, task_id)
            # A task starts others by its tools; what it starts otherwise is seen when its status changes.
            if event.type.startswith(("task.", "run.")) or event.type == events.TOOL_ENDED:
                page = await outrider.list(parent=task_id, limit=MAX_CHILDREN)
                for child in reversed(page.tasks):
                    if child.task_id not in known:
                        known.add(child.task_id)
                        below = board.child(row, child.agent, child.title)
                        following.append(asyncio.create_task(follow(child.task_id, below)))

    following += [asyncio.create_task(follow(task_id, row)) for task_id, row in rows.items()]
    try:
        for task in following:  # it grows meanwhile
            await task
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def whole(outrider: Outrider, task_id: str) -> list[Task]:
    """A task and all its descendants with their results and runs, each before those that it started."""
    return [await outrider.get(task.task_id) for task in (await outrider.tree(task_id)).flat()]
