"""The store's submits: a task and its first run are written in one step, or refused for their parent or a limit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .errors import ClaimLost, IdempotencyConflict, LimitReached, ParentClosed
from .family_keys import Family
from .limits import MAX_DEPTH, MAX_DESCENDANTS, MAX_OPEN_CHILDREN
from .statuses import RunKind
from .store_base import StoreBase
from .transitions import Facts, SubmitReply

if TYPE_CHECKING:
    from .context import Claim
    from .errors import OutriderError
    from .snapshots import Snapshot
    from .transitions import Submission


class Submits(StoreBase):
    """The part of the store that takes tasks."""

    async def submit(
        self, submission: Submission, claim: Claim | None = None, snapshot: Snapshot | None = None
    ) -> SubmitReply:
        """Write a task and its first run, `pending`. The caller rings.

        `claim` is that of the parent's run which submits; a stale one is refused with `ClaimLost`. A parent that is
        cancelled, cut or unknown takes no children, nor does one that has as many as its limits allow: `ParentClosed`.
        Too many tasks, open below the parent, in its tree or pending in all, or too many levels: `LimitReached`.
        `snapshot` is what a fork's first run begins with.

        With an idempotency key that was used for the same payload, the answer names the task it made then; with
        another payload it raises `IdempotencyConflict`.
        """
        facts = Facts(
            submission.task_id, submission.agent, submission.title, submission.parent_id, submission.ancestors
        )
        family = Family(self.keys, facts)
        task_fields, run_fields = _task_fields(submission), _run_fields(submission, snapshot)
        key = submission.idempotency_key
        reply = await self._scripts(
            "submit",
            [
                *self._task_keys(facts, submission.run_id),
                *family.keys,
                self.keys.tasks(),
                self.keys.agent(submission.agent),
                self.keys.idempotency(key) if key else self.keys.task(submission.task_id),
                self.keys.children(submission.parent_id) if submission.parent_id else self.keys.trees(),
                *self._ancestor_keys(facts),
            ],
            {
                "task_id": submission.task_id,
                "run_id": submission.run_id,
                "payload": submission.payload_hash() if key else "",
                "ring_again_ms": self._ring_again_ms,
                "input": json.dumps(submission.input),
                "event_data": json.dumps({"agent": submission.agent, "title": submission.title}),
                "notify_parent": int(submission.notify_parent),
                "by_run": claim.run_id if claim else "",
                "by_epoch": claim.epoch if claim else "",
                "by_token": claim.token if claim else "",
                "context": json.dumps(submission.context) if submission.context is not None else "",
                "configurable": json.dumps(submission.configurable) if submission.configurable else "",
                "rubric": submission.rubric.model_dump_json() if submission.rubric else "",
                "request": submission.request,
                "max_pending": self._max_pending,
                "max_open": MAX_OPEN_CHILDREN,
                "max_depth": MAX_DEPTH,
                "max_descendants": MAX_DESCENDANTS,
            },
            [
                len(task_fields) * 2,
                *_flat(task_fields),
                len(run_fields) * 2,
                *_flat(run_fields),
                *(part for pair in (snapshot.items if snapshot else {}).items() for part in pair),
            ],
        )
        if reply[0] == b"conflict":
            raise IdempotencyConflict(key or "", reply[1].decode())
        if reply[0] == b"refused":
            raise _refusal(reply[1].decode(), submission, claim, *map(int, reply[2:]))
        return SubmitReply(task_id=reply[1].decode(), run_id=reply[2].decode(), created=reply[0] == b"created")


def _task_fields(submission: Submission) -> dict[str, str]:
    """The task's record as it begins."""
    return {
        "task_id": submission.task_id,
        "agent": submission.agent,
        "title": submission.title,
        "home": "worker",
        "mode": submission.mode,
        "limits": submission.limits.model_dump_json(exclude_none=True),
        "metadata": json.dumps(submission.metadata) if submission.metadata else "",
        "queue": submission.own_queue or "",
        "work_queue": submission.queue,
        "wake_queue": submission.wake_queue,
        "grade_queue": submission.grade_queue or "",
        "parent_id": submission.parent_id or "",
        "ancestors": " ".join(submission.ancestors),
        "notify_parent": "1" if submission.notify_parent else "0",
        **submission.limits.of_submits(),
        **({"idempotency_key": submission.idempotency_key} if submission.idempotency_key else {}),
        "answer_within_ms": "" if submission.answer_within_ms is None else str(submission.answer_within_ms),
        "max_attempts": str(submission.max_attempts or ""),
        **({"webhook": submission.webhook} if submission.webhook else {}),
    }


def _run_fields(submission: Submission, snapshot: Snapshot | None) -> dict[str, str]:
    return {
        "run_id": submission.run_id,
        "task_id": submission.task_id,
        "kind": RunKind.AGENT.value,
        "queue": submission.queue,
        **({"fork": snapshot.name} if snapshot else {}),
    }


def _refusal(why: str, submission: Submission, claim: Claim | None, limit: int = 0) -> OutriderError:
    if why == "stale" and claim:
        claim.mark_stale()
        return ClaimLost(claim.task_id, claim.run_id)
    reasons = {
        "unknown": ParentClosed.UNKNOWN,
        "cancelled": "it is cancelled",
        "cut": "a task above it is cancelled",
        "full": f"its limits.max_children = {limit} is reached",
    }
    if why not in reasons:
        return LimitReached(why, limit, submission.parent_id, submission.ancestors)
    return ParentClosed(submission.parent_id or "", reasons[why])


def _flat(fields: dict[str, str]) -> list[str]:
    return [part for pair in fields.items() for part in pair]
