"""Registering external parents: tasks without runs, with children and an inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..shared.errors import BadInput
from ..shared.ids import NAME_RULE, check_id, is_name, new_id, shorten
from ..shared.store_external import EXTERNAL
from .submit_request import title_of

if TYPE_CHECKING:
    from ..shared.records import Task
    from .session import Session


async def register(
    session: Session,
    agent: str | None = None,
    *,
    home: str = EXTERNAL,
    task_id: str | None = None,
    title: str | None = None,
) -> Task:
    """Do what `Outrider.register` does."""
    if home != EXTERNAL:
        raise BadInput(f"home {shorten(repr(home))} must be {EXTERNAL!r}: a task for a worker is submitted")
    name = EXTERNAL if agent is None else agent
    if not is_name(name):
        raise BadInput(f"agent {shorten(repr(agent))} {NAME_RULE}")
    parent_id, (shown, _) = new_id() if task_id is None else check_id(task_id), title_of(title, name)
    with session.reachable():
        await session.store.register(parent_id, name, shown)
        return await session.store.get(parent_id)
