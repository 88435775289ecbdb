"""Listing tasks: the arguments are checked before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput
from ..shared.ids import check_id, is_name, shorten
from ..shared.listings import Tree
from ..shared.statuses import Status

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..shared.listings import Page
    from ..shared.records import Task
    from ..shared.store_queries import Queries
    from .session import Session

MAX_PAGE = 1000  #: tasks that one `list` gives at most


async def page(
    session: Session,
    *,
    status: Status | str | Collection[Status | str] = (),
    agent: str | None = None,
    parent: str | None = None,
    limit: Any,
    before: str | None = None,
) -> Page:
    """Do what `Outrider.list` does."""
    statuses = _statuses(status)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= MAX_PAGE:
        raise BadInput(f"limit {shorten(repr(limit))} must be a whole number from 0 to {MAX_PAGE}")
    if agent is not None and not is_name(agent):
        raise BadInput(f"agent {shorten(repr(agent))} is no agent's name")
    with session.reachable():
        if parent is not None:
            await session.store.peek(check_id(parent, "parent"))
        return await session.store.list(statuses=statuses, agent=agent, parent_id=parent, limit=limit, before=before)


async def tree(session: Session, task_id: str) -> Tree:
    """Do what `Outrider.tree` does."""
    check_id(task_id)
    with session.reachable():
        return await _below(session.store, await session.store.peek(task_id))


async def _below(store: Queries, top: Task) -> Tree:
    children: dict[str, list[Task]] = {top.task_id: []}
    level = [top.task_id]
    while level:
        found = [child async for page in store.children_of(level) for child in page]
        for child in found:
            children[child.task_id] = []
            if child.parent_id is not None:
                children[child.parent_id].append(child)
        level = [child.task_id for child in found]

    def grown(task: Task) -> Tree:
        return Tree(task=task, children=tuple(grown(child) for child in reversed(children[task.task_id])))

    return grown(top)


def _statuses(status: Any) -> frozenset[Status]:
    try:
        return frozenset(Status(one) for one in ([status] if isinstance(status, str) else status))
    except (ValueError, TypeError):
        raise BadInput(f"status {shorten(repr(status))} must be of {', '.join(Status)}") from None
