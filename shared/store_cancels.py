"""The store's cancels: a task ends now, whatever it does; a walk that anyone may finish closes what is below it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from .bells import bells_of
from .chunks import chunks
from .context import running
from .errors import UnknownTask
from .family_keys import Family
from .notification import note_of
from .statuses import Phase, Status
from .store_base import StoreBase
from .store_deliveries import delivery_of
from .store_queries import CHUNK
from .transitions import CancelReply, Cut, Facts

if TYPE_CHECKING:
    from .bells import Bell
    from .records import Task


class Cancels(StoreBase):
    """The part of the store that cancels tasks and trees."""

    async def cancel(self, task_id: str, *, keep_children: bool = False, by: str | None = None) -> CancelReply:
        """End a task now, whatever it does, and its descendants unless they are kept.

        A task that had ended keeps its status, and the answer says which; its descendants are closed all the same. The
        parent hears of it, unless `by`, the task that cancels, is the parent itself and does not rest. The caller rings
        the bells of the answer.
        """
        inside = running.get()
        if not keep_children and inside is not None and inside.claim.task_id == task_id:
            inside.claim.cancels_itself = True
        task = await self.peek(task_id)
        tell_parent = by is None or by != task.parent_id
        answer = await self._cancel_one(task, keep_children=keep_children, tell_parent=tell_parent)
        return answer if keep_children else await self._and_below(answer)

    async def _and_below(self, answer: CancelReply) -> CancelReply:
        if not answer.has_children:
            return answer
        return replace(answer, bells=answer.bells + await self.close_below(answer.task_id))

    async def close_below(self, task_id: str) -> tuple[Bell, ...]:
        """Cancel the descendants of a task that was cancelled with its children. A second call finds nothing to do.

        They take no children any more, so one walk finds all; where the canceller died, a sweeper walks again. A
        canceller that is itself among them is closed last, since that ends this walk. The caller rings the bells of
        the answer: a parent that was not cancelled may have rested for a task that is closed here.
        """
        inside, last = running.get(), None
        began = await self.now_ms()
        bells: list[Bell] = []
        above, walked = [task_id], [task_id]
        while above:
            level, above = above, []
            async for children in self.children_of(level):
                for child in children:
                    if inside is not None and child.task_id == inside.claim.task_id:
                        last = child
                        above.append(child.task_id)
                others = [child for child in children if child is not last]
                for answer in await asyncio.gather(*map(self._cancel_cut, others)):
                    bells += answer.bells
                    if answer.has_children:
                        above.append(answer.task_id)
                    if answer.outcome != "left":
                        walked.append(answer.task_id)
        for some in chunks(walked, CHUNK):
            await self._scripts("closed", [self.keys.closing()], [began, *some])
        if last is not None:
            bells += (await self._cancel_cut(last)).bells
        return tuple(bells)

    async def _cut(self, facts: Facts) -> Cut:
        # Unless an update came meanwhile: then the task is not cut any more.
        answer = await self._cancel_cut(await self.peek(facts.task_id))
        return Cut((await self._and_below(answer)).bells)

    async def _cancel_cut(self, task: Task) -> CancelReply:
        return await self._cancel_one(task, keep_children=False, tell_parent=False, only_cut=True)

    async def _cancel_one(
        self, task: Task, *, keep_children: bool, tell_parent: bool, only_cut: bool = False
    ) -> CancelReply:
        facts = Facts.of(task)
        while True:
            family = Family(self.keys, facts)
            last_run = await self._last_run(task)
            note = note_of(facts, last_run, Status.CANCELLED, None, "")
            reply = await self._scripts(
                "cancel",
                [
                    *self._task_keys(facts, task.run_id),
                    *family.keys,
                    self.keys.follow_ups(task.task_id),
                    self.keys.control(),
                    self.keys.children(task.task_id),
                    self.keys.closing(),
                    self.keys.deliveries(),
                    self.keys.delivery(last_run),
                    *self._ancestor_keys(facts),
                ],
                {
                    "task_id": task.task_id,
                    "run_id": task.run_id or "",
                    "event_data": json.dumps({"status": Status.CANCELLED.value}),
                    "keep_children": int(keep_children),
                    "note": note,
                    "quietly": int(not tell_parent),
                    "wake_id": family.wake_run,
                    "ring_again_ms": self._ring_again_ms,
                    "only_cut": int(only_cut),
                    **delivery_of(facts, last_run, note),
                },
            )
            match reply[0]:
                case b"cancelled":
                    bells, follow_ups = bells_of(reply[3]), int(reply[4])
                    has_children = bool(reply[2])
                    return CancelReply(task.task_id, "cancelled", Status.CANCELLED, bells, follow_ups, has_children)
                case b"already_finished" | b"left":
                    status, has_children = Status(reply[1].decode()), bool(reply[2])
                    return CancelReply(task.task_id, reply[0].decode(), status, has_children=has_children)
                case b"unknown":
                    raise UnknownTask(task.task_id)
            task = await self.peek(task.task_id)  # another run is active by now

    async def _last_run(self, task: Task) -> str:
        """The agent's run by which the parent is told of the end: never a grade run."""
        if task.run_id and task.phase is not Phase.GRADING:
            return task.run_id
        last = task.run_id or (await self.redis.lindex(self.keys.runs(task.task_id), -1) or b"").decode()
        return await self.graded_run(last) or last
