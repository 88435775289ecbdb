"""The keys of a task's parent and children that scripts are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ids import new_id

if TYPE_CHECKING:
    from .keys import Keys
    from .transitions import Facts


class Family:
    """KEYS 18 to 29 of the scripts that concern a family, and the ids of the runs that they may start."""

    def __init__(self, keys: Keys, facts: Facts, *, next_run: str | None = None, wake_run: str | None = None) -> None:
        self.next_run, self.wake_run = next_run or new_id(), wake_run or new_id()
        task = keys.task(facts.task_id)
        parent = facts.parent_id
        self.keys = [
            keys.open_children(facts.task_id),
            keys.run(self.next_run),
            keys.input(self.next_run),
            keys.inbox(facts.task_id),
            *(
                (
                    keys.task(parent),
                    keys.inbox(parent),
                    keys.events(parent),
                    keys.runs(parent),
                    keys.open_children(parent),
                    keys.run(self.wake_run),
                    keys.input(self.wake_run),
                    keys.open_children(facts.ancestors[-2]) if len(facts.ancestors) > 1 else task,
                )
                if parent
                else (task,) * 8
            ),
        ]
