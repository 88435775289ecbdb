"""The store's updates: a message to an existing task starts a run at once, or waits for the end of the active one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .bells import bells_of
from .errors import ClaimLost, TaskActive, UnknownTask
from .family_keys import Family
from .ids import new_id
from .records import Interrupt
from .statuses import Status, Strategy
from .store_base import StoreBase
from .transitions import Facts, UpdateReply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .context import Claim
    from .records import Task
    from .rubric import Rubric
    from .scripts import Argument


class Updates(StoreBase):
    """The part of the store that gives tasks more to do."""

    async def update(
        self,
        task_id: str,
        given: Mapping[str, Any],
        strategy: Strategy | None = None,
        *,
        key: str | None = None,
        claim: Claim | None = None,
        rubric: Rubric | None = None,
        grade_queue: str | None = None,
    ) -> UpdateReply:
        """Start a run on the task's conversation, given `{"text": …, "state": {…}}`. The caller rings.

        While a run is active it is stopped, or awaited, as `strategy` says; without one `TaskActive` is raised. A
        question is dropped, unless the update is to wait for its answer. A second call with the same `key` changes
        nothing. A `rubric` replaces the task's at once, and its grade runs go to `grade_queue`. `claim` is that of an
        ancestor's run which updates; a stale one is refused with `ClaimLost`.
        """
        new_run, update_id = new_id(), key or new_id()
        while True:
            task = await self.peek(task_id)
            facts, last_run = Facts.of(task), await self._newest_run(task_id)
            family = Family(self.keys, facts, next_run=new_run)
            reply = await self._scripts(
                "update",
                [
                    *self._task_keys(facts, last_run),
                    *family.keys,
                    self.keys.follow_ups(task_id),
                    self.keys.control(),
                    *self._ancestor_keys(facts),
                ],
                {
                    "task_id": task_id,
                    "last_run": last_run,
                    "seen": f"{task.status}/{task.phase or ''}",
                    "how": _how(task, strategy),
                    "input": json.dumps(given),
                    "update_id": update_id,
                    "ring_again_ms": self._ring_again_ms,
                    "run_id": new_run,
                    **_fence(facts, claim),
                    "rubric": rubric.model_dump_json() if rubric else "",
                    "grade_queue": grade_queue or "",
                    "keyed": int(key is not None),
                },
            )
            match reply[0]:
                case b"started":
                    dropped = tuple(Interrupt.model_validate(one) for one in json.loads(reply[3] or b"[]"))
                    overtaken = reply[4].decode() or None
                    return UpdateReply(reply[1].decode(), overtaken, dropped, bells_of(reply[2]))
                case b"queued":
                    return UpdateReply(None)
                case b"active":
                    raise TaskActive(task_id, last_run, task.status)
                case b"unknown":
                    raise UnknownTask(task_id)
                case b"stale" if claim is not None:
                    claim.mark_stale()
                    raise ClaimLost(claim.task_id, claim.run_id)

    async def _newest_run(self, task_id: str) -> str:
        run_id = await self.redis.lindex(self.keys.runs(task_id), -1)
        return run_id.decode() if run_id else ""


def _how(task: Task, strategy: Strategy | None) -> str:
    """What the script is to do with the task as it was read; `refuse`: a run is active, and no strategy is given."""
    if strategy is Strategy.ENQUEUE and (task.run_id or task.status is Status.WAITING):
        return strategy.value
    if task.run_id is None:
        return "start"
    return strategy.value if strategy else "refuse"


def _fence(facts: Facts, claim: Claim | None) -> dict[str, Argument]:
    """Which ancestor updates, and its claim."""
    if claim is None:
        return {"by": "", "by_run": "", "by_epoch": "", "by_token": ""}
    by = facts.ancestors.index(claim.task_id) + 1
    return {"by": by, "by_run": claim.run_id, "by_epoch": claim.epoch, "by_token": claim.token}
