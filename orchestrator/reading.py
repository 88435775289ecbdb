"""Reading one task: its record, and the state that its agent has saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.ids import check_id

if TYPE_CHECKING:
    from ..shared.records import Task
    from .session import Session


async def read_task(session: Session, task_id: str) -> Task:
    """Do what `Outrider.get` does."""
    check_id(task_id)
    with session.reachable():
        return await session.store.get(task_id)


async def read_saved(session: Session, task_id: str) -> dict[str, Any]:
    """Do what `Outrider.state` does."""
    from ..shared.thread_state import read_state  # noqa: PLC0415 LangGraph takes its time to import

    check_id(task_id)
    with session.reachable():
        await session.store.peek(task_id)
        return await read_state(session.store.redis, session.store.keys, task_id)
