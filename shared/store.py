"""The store: every change of a record is one atomic Lua transition. The queue rings; the record decides.

Keys of a task are computed from its immutable facts (`Facts`) and ids that the caller makes. Writes for a run carry
its claim and are refused, with `False`, once a later claim or a cancel has replaced it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .bells import bells_of
from .context import Claim
from .family_keys import Family
from .ids import derived_id, new_token
from .input_layout import FEEDBACK, joined
from .notification import Notification, note_of
from .record_layout import hash_of
from .records import Run, Task
from .statuses import Phase
from .store_cancels import Cancels
from .store_clockwork import Clockwork
from .store_deliveries import Deliveries, delivery_of
from .store_external import ExternalParents
from .store_questions import Questions
from .store_removal import Removal
from .store_submits import Submits
from .store_updates import Updates
from .transitions import Claimed, Cut, NotClaimed, Settled, flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .transitions import Ending, Event, Facts


class Store(Submits, Cancels, Questions, Updates, Clockwork, ExternalParents, Deliveries, Removal):
    """Records in Redis. One per process and loop; `redis` returns bytes (`decode_responses=False`)."""

    async def claim(
        self, facts: Facts, run_id: str, *, worker: str, lease_ms: int, slots: int = 0
    ) -> Claimed | NotClaimed | Cut:
        """Take a pending run for this process.

        Where as many runs of its agent are at work as it has `slots` (0: no bound), the run stays pending and waits for
        one; see `admit`. The caller rings the bells of a `Cut`.
        """
        token = new_token()
        reply = await self._scripts(
            "claim",
            [*self._task_keys(facts, run_id), self.keys.inbox(facts.task_id), *self._ancestor_keys(facts)],
            {
                "task_id": facts.task_id,
                "run_id": run_id,
                "token": token,
                "worker": worker,
                "lease_ms": lease_ms,
                "event_data": json.dumps({"worker": worker}),
                "slots": slots,
                "ring_again_ms": self._ring_again_ms,
            },
        )
        if reply[0] == b"cut":
            return await self._cut(facts)
        if reply[0] != b"claimed":
            return NotClaimed(*(part.decode() for part in reply))
        run = Run.from_hash(hash_of(reply[4]))
        return Claimed(
            claim=Claim(facts, run_id, int(reply[1]), token, run.inbox_to),
            task=Task.from_hash(hash_of(reply[3])),
            run=run,
            input=joined(reply[2]),
            notifications=await self.notes_of(reply[5]),
            context=json.loads(reply[6]) if reply[6] else None,
            configurable=json.loads(reply[7]) if reply[7] else {},
            snapshot=tuple(reply[8]),
        )

    async def settle(self, claim: Claim, ending: Ending, *, only_expired: bool = False) -> Settled | Cut | None:
        """End the run and, unless it asks a person or rests, its task; tell the parent in the same step.

        The caller rings the bells of the answer. `None`: the claim was replaced, and nothing was changed. A second call
        changes nothing, and gives the bells again as long as nobody answered them.
        """
        facts = claim.facts
        next_run, wake_run = (derived_id(claim.run_id, claim.token, what) for what in ("next", "wake"))
        family = Family(self.keys, facts, next_run=next_run, wake_run=wake_run)
        told_by = ending.grade.graded_run_id if ending.grade else claim.run_id
        note = _note(facts, told_by, ending)
        reply = await self._scripts(
            "settle",
            [*self._ending_keys(facts, claim.run_id, family, told_by), *self._ancestor_keys(facts)],
            {
                "task_id": claim.task_id,
                "run_id": claim.run_id,
                "epoch": claim.epoch,
                "token": claim.token,
                "only_expired": int(only_expired),
                "run_status": ending.run_status.value,
                "ended_as": ending.ended_as.value,
                "status": ending.task_status.value,
                "phase": ending.task_phase.value if ending.task_phase else "",
                "result": ending.result or "",
                "error_type": ending.error_type,
                "error_message": ending.error_message,
                "usage": ending.usage.model_dump_json() if ending.usage else "",
                "interrupts": _questions(ending),
                "asked": " ".join(interrupt.id for interrupt in ending.interrupts),
                "note": note,
                "next_id": family.next_run,
                "wake_id": family.wake_run,
                "ring_again_ms": self._ring_again_ms,
                "grade": ending.grade.model_dump_json() if ending.grade else "",
                "revision": json.dumps({FEEDBACK: ending.feedback}) if ending.feedback else "",
                **delivery_of(facts, told_by, note),
            },
            flat([*ending.events, _last_event(ending)]),
        )
        if reply[0] == b"cut":
            return await self._cut(facts)
        return Settled(bells_of(*reply[1:])) if reply[0] == b"settled" else None

    async def take(self, claim: Claim, after: int) -> tuple[Notification, ...] | None:
        """What a running parent's state, whose cursor is `after`, was not told yet; it counts as given from here on.

        `None`: the claim was replaced.
        """
        reply = await self._scripts(
            "take",
            [*self._task_keys(claim.facts, claim.run_id), self.keys.inbox(claim.task_id)],
            [claim.run_id, claim.epoch, claim.token, after],
        )
        if reply[0] != b"taken":
            return None
        return await self.notes_of(reply[1])

    async def emit(self, claim: Claim, events: Sequence[Event]) -> bool:
        """Put events of a running agent into its task's stream. `False`: the claim was replaced."""
        keys = self._task_keys(claim.facts, claim.run_id)
        reply = await self._scripts("emit", keys, [claim.run_id, claim.epoch, claim.token], flat(events))
        return bool(reply[0] == b"emitted")


def _questions(ending: Ending) -> str:
    return json.dumps([interrupt.to_json() for interrupt in ending.interrupts]) if ending.interrupts else ""


def _note(facts: Facts, run_id: str, ending: Ending) -> str:
    """What the parent and the webhook are told; empty where nobody is to be told, or the task goes on."""
    asks = ending.task_phase is Phase.ASKING
    if not (facts.parent_id or facts.webhook) or not (asks or ending.task_status.terminal):
        return ""
    told = _questions(ending) if asks else ending.result
    return note_of(facts, run_id, ending.task_status, told, ending.error_type, grade=ending.grade)


def _last_event(ending: Ending) -> Event:
    kind = "task.settled" if ending.task_phase is None else "task.waiting"
    asks = {"interrupts": [interrupt.id for interrupt in ending.interrupts]} if ending.interrupts else {}
    return kind, {"status": ending.task_status.value, "error_type": ending.error_type or None, **asks}
