"""Several tasks together: a tree of them, or a page of a list."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from .limits import Usage
from .record_base import Record
from .records import Task  # noqa: TC001 pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Iterator


class Tree(Record):
    """A task with its descendants."""

    task: Task
    children: tuple[Tree, ...] = ()

    def flat(self) -> Iterator[Task]:
        """All its tasks, each before those that it started."""
        yield self.task
        for child in self.children:
            yield from child.flat()

    @property
    def usage(self) -> Usage:
        """What the models of all its tasks consumed."""
        return reduce(Usage.plus, (task.usage for task in self.flat()))

    @property
    def open_tasks(self) -> tuple[Task, ...]:
        """Those of its tasks that have not ended."""
        return tuple(task for task in self.flat() if not task.status.terminal)

    def to_json(self) -> dict[str, Any]:
        """The task's public form with its `children`, each in this form too, and the `tree_usage` of it and them."""
        children = [child.to_json() for child in self.children]
        return {**self.task.to_json(), "tree_usage": self.usage.model_dump(mode="json"), "children": children}


class Page(Record):
    """A page of tasks, newest first."""

    tasks: tuple[Task, ...]
    more: bool  #: whether there are older ones
    next: str | None = None  #: cursor for the next page: the last task of this one

    def to_json(self) -> dict[str, Any]:
        """The public form."""
        return {"tasks": [task.to_json() for task in self.tasks], "more": self.more, "next": self.next}
