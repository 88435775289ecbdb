"""The store's questions to a person: answers, and the end of a task that waited too long for one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .bells import bells_of
from .errors import AnswerConflict, NotWaiting, SeveralQuestions, UnknownTask
from .family_keys import Family
from .ids import new_token
from .notification import note_of
from .statuses import Status
from .store_base import StoreBase
from .store_deliveries import delivery_of
from .transitions import AnswerReply, Settled

if TYPE_CHECKING:
    from .transitions import Facts

UNANSWERED = "Unanswered"  #: the type of the error of a task whose question expired


class Questions(StoreBase):
    """The part of the store that deals with tasks which wait for a person."""

    async def answer(self, facts: Facts, value: Any, *, interrupt: str | None = None) -> AnswerReply:
        """Accept a JSON value for a question, or for the only one that is open; the last one starts a run.

        The caller rings the bells of the answer. Raises `SeveralQuestions`, `AnswerConflict` (it is not asked, or not
        any more), `NotWaiting` or `UnknownTask`; then nothing was changed.
        """
        family = Family(self.keys, facts)
        status, *rest = await self._scripts(
            "answer",
            [*self._task_keys(facts, None), *family.keys, self.keys.answers(facts.task_id)],
            {
                "id": interrupt or "",
                "value": json.dumps(value),
                "call_id": new_token(),
                "next_id": family.next_run,
                "ring_again_ms": self._ring_again_ms,
            },
        )
        match status:
            case b"answered":
                left = _ids(rest[1])
                return AnswerReply(
                    facts.task_id, rest[0].decode(), left, None if left else family.next_run, bells_of(rest[2])
                )
            case b"several":
                raise SeveralQuestions(facts.task_id, _ids(rest[0]))
            case b"not_asked":
                raise AnswerConflict(facts.task_id, interrupt or "", _ids(rest[0]))
            case b"not_waiting":
                raise NotWaiting(facts.task_id, Status(rest[0].decode()))
        raise UnknownTask(facts.task_id)

    async def expire(self, facts: Facts, run_id: str) -> Settled | None:
        """End a task as `timeout` whose question, asked by this run, expired; its parent is told in the same step.

        Where follow-ups wait, the task goes on with the next one instead. The caller rings the bells of the answer.
        `None`: an answer, or an end, came before it.
        """
        family = Family(self.keys, facts)
        note = note_of(facts, run_id, Status.TIMEOUT, None, UNANSWERED)
        reply = await self._scripts(
            "expire",
            self._ending_keys(facts, None, family, run_id),
            {
                "task_id": facts.task_id,
                "run_id": run_id,
                "error_type": UNANSWERED,
                "error_message": "nobody answered its question in time (answer_within bounds the wait)",
                "event_data": json.dumps({"status": Status.TIMEOUT.value, "error_type": UNANSWERED}),
                "note": note,
                "wake_id": family.wake_run,
                "ring_again_ms": self._ring_again_ms,
                "next_id": family.next_run,
                **delivery_of(facts, run_id, note),
            },
        )
        return Settled(bells_of(*reply[1:])) if reply[0] == b"expired" else None


def _ids(reply: list[bytes]) -> tuple[str, ...]:
    return tuple(one.decode() for one in reply)
