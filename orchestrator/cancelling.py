"""Cancelling a task, and ringing for the parents that are woken by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..shared.context import running
from ..shared.ids import check_id

if TYPE_CHECKING:
    from ..shared.transitions import CancelReply
    from .session import Session


async def cancel(session: Session, task_id: str, *, keep_children: bool = False, by: str | None = None) -> CancelReply:
    """Do what `Outrider.cancel` does. `by` is the task that cancels, the running one where none is named."""
    check_id(task_id)
    inside = running.get()
    who = by or (inside.claim.task_id if inside else None)
    with session.reachable():
        answer = await session.store.cancel(task_id, keep_children=keep_children, by=who)
    await session.ring(*answer.bells)
    return answer
