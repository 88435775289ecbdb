"""The tree below a task, for `show`: how many tasks, which are open, and what all of them used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...shared.text import counted

if TYPE_CHECKING:
    from ...shared.limits import Usage
    from ...shared.listings import Tree

SHOWN = 10  #: open tasks that are named


def tree_json(tree: Tree) -> dict[str, Any]:
    """How many tasks there are, the task itself counted, how many have not ended, and what all of them used."""
    usage = tree.usage.model_dump(mode="json")
    return {"tasks": len(list(tree.flat())), "open_tasks": len(tree.open_tasks), "usage": usage}


def tree_facts(tree: Tree) -> list[tuple[str, str]]:
    """What is below a task; those that are open are named, also where the task itself has ended."""
    if not tree.children:
        return []
    below = [task for child in tree.children for task in child.flat()]
    still_open = [task for task in below if not task.status.terminal]
    how_many = f"{counted(len(below), 'task')}, {len(still_open)} open (outrider list --parent {tree.task.task_id})"
    rows = [("below", how_many), ("usage of all", counts(tree.usage))]
    for task in still_open[:SHOWN]:
        status = f"{task.status}/{task.phase}" if task.phase else task.status.value
        rows.append(("open", f"{task.task_id}, {task.agent}, {status}, {task.title}"))
    if len(still_open) > SHOWN:
        rows.append(("open", f"and {len(still_open) - SHOWN} more"))
    return [(name, text) for name, text in rows if text]


def counts(usage: Usage) -> str:
    """Tokens and turns in words; empty where there are none."""
    if not usage.turns:
        return ""
    tokens, turns = counted(usage.total_tokens, "token"), counted(usage.turns, "turn")
    return f"{tokens} ({usage.input_tokens} in, {usage.output_tokens} out), {turns}"
