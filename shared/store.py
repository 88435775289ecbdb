"""The store: every change of a record is one atomic Lua transition. The queue rings; the record decides.

Keys of a task are computed from its immutable facts (`Facts`) and ids that the caller makes. Writes for a run carry
its claim and are refused, with `False`, once a later claim or a cancel has replaced it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .context import Claim
from .errors import IdempotencyConflict, UnknownTask
from .ids import new_token
from .queries import Queries
from .records import Run, Task, Usage
from .scripts import Scripts
from .statuses import RunKind, Status
from .transitions import Cancelled, Claimed, Due, Ending, Facts, Submission, Submitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis.asyncio

SWEEP_PAGE = 100  #: members that one sweep looks at, of each kind


class Store(Queries):
    """Records in Redis. One per process and loop; `redis` returns bytes (`decode_responses=False`)."""

    def __init__(self, redis: redis.asyncio.Redis, namespace: str, *, ring_again_ms: int = 60_000) -> None:
        super().__init__(redis, namespace)
        self._scripts = Scripts(redis)
        self._ring_again_ms = ring_again_ms

    def _task_keys(self, facts: Facts, run_id: str | None) -> list[str]:
        """KEYS 1 to 17 of the prelude. Where no run is meant, its places hold the task's own key."""
        keys = self.keys
        task = keys.task(facts.task_id)
        return [
            task,
            keys.run(run_id) if run_id else task,
            keys.input(run_id) if run_id else task,
            keys.result(facts.task_id),
            keys.events(facts.task_id),
            keys.runs(facts.task_id),
            keys.leases(),
            keys.ring_at(),
            keys.slots(facts.agent),
            *keys.statuses(),
        ]

    # --- the way of a task -------------------------------------------------------------------------------------

    async def submit(self, submission: Submission) -> Submitted:
        """Write a task and its first run, `pending`. The caller rings.

        With an idempotency key that was used for the same payload, the answer names the task it made then; with
        another payload it raises `IdempotencyConflict`.
        """
        facts = Facts(submission.task_id, submission.agent)
        task_fields = {
            "task_id": submission.task_id,
            "agent": submission.agent,
            "title": submission.title,
            "home": "worker",
            "mode": "isolated",
            "limits": submission.limits.model_dump_json(exclude_none=True),
            "metadata": json.dumps(submission.metadata) if submission.metadata else "",
            "context": json.dumps(submission.context) if submission.context is not None else "",
            "configurable": json.dumps(submission.configurable) if submission.configurable else "",
            "queue": submission.own_queue or "",
        }
        run_fields = {
            "run_id": submission.run_id,
            "task_id": submission.task_id,
            "kind": RunKind.AGENT.value,
            "queue": submission.queue,
        }
        key = submission.idempotency_key
        reply = await self._scripts(
            "submit",
            [
                *self._task_keys(facts, submission.run_id),
                self.keys.tasks(),
                self.keys.agent(submission.agent),
                self.keys.idempotency(key) if key else self.keys.task(submission.task_id),
            ],
            [
                submission.task_id,
                submission.run_id,
                submission.payload_hash() if key else "",
                self._ring_again_ms,
                json.dumps(submission.input),
                json.dumps({"agent": submission.agent, "title": submission.title}),
                len(task_fields) * 2,
                *_flat(task_fields),
                *_flat(run_fields),
            ],
        )
        if reply[0] == b"conflict":
            raise IdempotencyConflict(key or "", reply[1].decode())
        return Submitted(task_id=reply[1].decode(), run_id=reply[2].decode(), created=reply[0] == b"created")

    async def claim(self, facts: Facts, run_id: str, *, worker: str, lease_ms: int) -> Claimed | None:
        """Take a pending run for this process, or `None` where there is nothing to do: a doubled bell, a cancel."""
        token = new_token()
        reply = await self._scripts(
            "claim",
            self._task_keys(facts, run_id),
            [facts.task_id, run_id, token, worker, lease_ms, json.dumps({"worker": worker})],
        )
        if reply[0] != b"claimed":
            return None
        run = Run.from_hash(_pairs(reply[4]))
        return Claimed(
            claim=Claim(facts.task_id, run_id, int(reply[1]), token),
            task=Task.from_hash(_pairs(reply[3])),
            run=run,
            input=json.loads(reply[2] or b"{}"),
        )

    async def heartbeat(self, held: Sequence[tuple[Claim, str]], *, lease_ms: int) -> list[bool]:
        """Renew the leases of `(claim, agent)` pairs in one script; tell for each whether it still holds."""
        keys = [self.keys.leases()]
        args: list[Any] = [lease_ms]
        for claim, agent in held:
            keys += [self.keys.task(claim.task_id), self.keys.run(claim.run_id), self.keys.slots(agent)]
            args += [claim.task_id, claim.run_id, claim.epoch, claim.token]
        return [bool(flag) for flag in await self._scripts("heartbeat", keys, args)]

    async def settle(self, facts: Facts, claim: Claim, ending: Ending, *, only_expired: bool = False) -> bool:
        """End the run and, unless it asks a person, its task. `False`: the claim was replaced, and nothing was changed."""
        reply = await self._scripts(
            "settle",
            self._task_keys(facts, claim.run_id),
            [
                claim.task_id,
                claim.run_id,
                claim.epoch,
                claim.token,
                int(only_expired),
                ending.run_status.value,
                ending.ended_as.value,
                ending.task_status.value,
                ending.task_phase.value if ending.task_phase else "",
                ending.result or "",
                ending.error_type,
                ending.error_message,
                ending.usage.model_dump_json() if ending.usage else "",
                json.dumps([interrupt.to_json() for interrupt in ending.interrupts]) if ending.interrupts else "",
                *(part for kind, data in ending.events for part in (kind, json.dumps(data))),
                "task.settled" if ending.task_phase is None else "task.waiting",
                json.dumps({"status": ending.task_status.value, "error_type": ending.error_type or None}),
            ],
        )
        return bool(reply[0] == b"settled")

    async def give_back(self, facts: Facts, claim: Claim, usage: Usage | None = None) -> bool:
        """Return a claimed run to `pending`, same attempt, with the task's usage so far. `False`: it was replaced."""
        return await self._release(facts, claim, "given_back", 0, usage) == b"released"

    async def take_lost(self, facts: Facts, run: Run, *, max_attempts: int) -> str:
        """Return a run whose lease ran out to `pending`, attempt + 1.

        Answers `released`, `refused` (it was renewed or ended meanwhile), or `exhausted` where no attempt is left:
        then nothing was changed, and the caller settles it.
        """
        claim = Claim(run.task_id, run.run_id, run.epoch, run.token or "")
        return (await self._release(facts, claim, "lost", max_attempts)).decode()

    async def _release(
        self, facts: Facts, claim: Claim, how: str, max_attempts: int, usage: Usage | None = None
    ) -> bytes:
        reply = await self._scripts(
            "release",
            self._task_keys(facts, claim.run_id),
            [
                claim.task_id,
                claim.run_id,
                how,
                claim.epoch,
                claim.token,
                max_attempts,
                self._ring_again_ms,
                usage.model_dump_json() if usage else "",
                json.dumps({}),
            ],
        )
        outcome: bytes = reply[0]
        return outcome

    async def cancel(self, task_id: str) -> Cancelled:
        """End a task now, whatever it does. A task that had ended keeps its status, and the answer says which."""
        while True:
            task = await self.peek(task_id)
            if task.status.terminal and task.run_id is None:
                return Cancelled(task_id, "already_finished", task.status)
            reply = await self._scripts(
                "cancel",
                [*self._task_keys(Facts.of(task), task.run_id), self.keys.control()],
                [task_id, task.run_id or "", json.dumps({"status": Status.CANCELLED.value})],
            )
            if reply[0] == b"unknown":
                raise UnknownTask(task_id)
            if reply[0] == b"already_finished":
                return Cancelled(task_id, "already_finished", Status(reply[1].decode()))
            if reply[0] == b"cancelled":
                return Cancelled(task_id, "cancelled", Status.CANCELLED)

    async def stopped(self, facts: Facts, run_id: str) -> None:
        """Note that the code of a cancelled run has really ended. A second call does nothing."""
        await self._scripts("stopped", self._task_keys(facts, run_id), [run_id])

    async def emit(self, claim: Claim, agent: str, events: Sequence[tuple[str, dict[str, Any]]]) -> bool:
        """Put events of a running agent into its task's stream. `False`: the claim was replaced."""
        facts = Facts(claim.task_id, agent)
        parts = [part for kind, data in events for part in (kind, json.dumps(data))]
        reply = await self._scripts(
            "emit", self._task_keys(facts, claim.run_id), [claim.run_id, claim.epoch, claim.token, *parts]
        )
        return bool(reply[0] == b"emitted")

    # --- the clockwork -----------------------------------------------------------------------------------------

    async def sweep(self, *, lease_ms: int) -> Due:
        """Which leases ran out and which bells are overdue, a page of each. Any number of processes may ask."""
        keys = [self.keys.last_sweep(), self.keys.leases(), self.keys.ring_at()]
        lost, overdue = await self._scripts("sweep", keys, [lease_ms, SWEEP_PAGE])
        return Due(_members(lost), _members(overdue))

    async def ring_again(self, facts: Facts, run_id: str) -> bool:
        """Whether the caller is to ring this overdue bell now; the next ring is put off, twice as far each time."""
        reply = await self._scripts(
            "ring_again", self._task_keys(facts, run_id), [facts.task_id, run_id, self._ring_again_ms]
        )
        return bool(reply[0] == b"ring")

    async def forget_member(self, task_id: str, run_id: str) -> None:
        """Take a run whose task is gone off the clockwork."""
        await self.redis.zrem(self.keys.leases(), f"{task_id}/{run_id}")
        await self.redis.zrem(self.keys.ring_at(), f"{task_id}/{run_id}")


def _flat(fields: dict[str, str]) -> list[str]:
    return [part for pair in fields.items() for part in pair]


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _members(members: list[bytes]) -> tuple[tuple[str, str], ...]:
    pairs = (member.decode().split("/", 1) for member in members)
    return tuple((task_id, run_id) for task_id, run_id in pairs)
