"""The namespace in LangGraph's store of the files that a tree of tasks shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .context import running
from .errors import BadInput

if TYPE_CHECKING:
    from .file_layout import Namespace


def tree_namespace(root_id: str) -> Namespace:
    """Return the namespace of the files of a tree of tasks, known by the id of its root."""
    return ("trees", root_id, "files")


def running_tree(_runtime: object = None) -> Namespace:
    """Return the namespace of the files that the running task shares with its tree, for calls of the graph's store.

    Raise `BadInput` where no task runs.
    """
    now = running.get()
    if now is None:
        raise BadInput(
            "no task runs here, so there is no tree of tasks whose files these could be: "
            "ask for them inside a run, or give a namespace of your own"
        )
    return tree_namespace(now.task.root_id)
