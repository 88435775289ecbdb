"""Lists of tasks: what is asked for is checked here, before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput
from ..shared.ids import check_id, is_name, shorten
from ..shared.listings import Tree
from ..shared.statuses import Status

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..shared.listings import Page
    from ..shared.queries import Queries
    from ..shared.records import Task

MAX_PAGE = 1000  #: tasks that one `list` gives at most


async def page(
    store: Queries,
    *,
    status: Status | str | Collection[Status | str],
    agent: str | None,
    parent: str | None,
    limit: Any,
    before: str | None,
) -> Page:
    """A page of tasks, as `Outrider.list` gives it."""
    statuses = _statuses(status)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= MAX_PAGE:
        raise BadInput(f"limit {shorten(repr(limit))} must be a whole number from 0 to {MAX_PAGE}")
    if agent is not None and not is_name(agent):
        raise BadInput(f"agent {shorten(repr(agent))} is no agent's name")
    if parent is not None:
        await store.peek(check_id(parent, "parent"))
    return await store.list(statuses=statuses, agent=agent, parent_id=parent, limit=limit, before=before)


async def tree_of(store: Queries, task: Task) -> Tree:
    """The task and all its descendants, children oldest first, without results and runs."""
    children = [child async for child in store.children_of(task.task_id)]
    return Tree(task=task, children=tuple([await tree_of(store, child) for child in reversed(children)]))


def _statuses(status: Any) -> frozenset[Status]:
    try:
        return frozenset(Status(one) for one in ([status] if isinstance(status, str) else status))
    except (ValueError, TypeError):
        raise BadInput(f"status {shorten(repr(status))} must be of {', '.join(Status)}") from None
