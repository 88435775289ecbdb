"""What a grade run does: checks first, then a model; the outcome is a grade."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..shared import events
from ..shared.grades import GradeResult, recorded
from ..shared.limits import Limits, Usage
from ..shared.thread_state import read_state
from .control import Stop
from .grader_checks import checked
from .grader_feedback import revision
from .grader_model import ModelGrader
from .grader_subject import Subject
from .grader_verdict import NoVerdict, relied_on
from .meter import Meter
from .outcomes import Failed, Graded

if TYPE_CHECKING:
    from typing import Any

    from langchain_core.runnables import RunnableConfig

    from ..shared.grades import Grade, GradedCriterion, Verdict
    from ..shared.records import Task
    from ..shared.transitions import Claimed
    from .control import Control
    from .deps import Deps
    from .emitter import Emitter
    from .outcomes import Outcome

GRADER_SECONDS, GRADER_TURNS = 600, 30  #: bounds of one grade run where its task has none


class GradeWork:
    """One grade run. The task's limits bound each grade run separately; what graders use is counted separately."""

    def __init__(self, deps: Deps, claimed: Claimed, control: Control, emitter: Emitter) -> None:
        self._deps, self._claimed, self._control, self._emitter = deps, claimed, control, emitter
        self.task = _by_itself(claimed.task)
        self._meter = Meter(self.task, control.stop, emitter.emit)
        self._checked: tuple[GradedCriterion, ...] = ()
        self._said: Verdict | None = None  #: by the model, so far
        self._grade: Grade | None = None
        self._subject: Subject

    @property
    def usage(self) -> Usage:
        """What the models of the whole task consumed, its graders' apart."""
        return self._claimed.task.usage_counted.model_copy(update={"grader": self._meter.usage})

    async def prepare(self) -> None:
        """Read what is to be graded."""
        self._subject = await Subject.of(self._deps.store, self._claimed.claim.task_id, self._claimed.run)

    async def run(self) -> None:
        """Grade it."""
        subject = self._subject
        where = {"grading_run_id": subject.grading_run_id, "iteration": subject.iteration}
        self._emitter.emit(events.GRADE_STARTED, where)
        state = await self._state()
        self._subject = subject = replace(subject, reads="messages" in state)
        self._grade = await self._graded(subject, state)

    async def _state(self) -> dict[str, Any]:
        store = self._deps.store
        return await read_state(store.redis, store.keys, self._claimed.claim.task_id)

    async def _graded(self, subject: Subject, state: dict[str, Any]) -> Grade | None:
        checks = self._deps.agents.entry(subject.task.agent).grading.checks
        if checks is not None:
            task = subject.task.model_copy(update={"result": subject.result})
            configurable = {**self._claimed.configurable, "thread_id": task.task_id}
            config: RunnableConfig = {"configurable": configurable, "callbacks": [self._meter]}
            verdict = await checked(checks, self._deps.config.folder, task, state, config)
            self._checked = recorded(verdict.criteria, "checks")
            if verdict.result != "satisfied" or subject.task.rubric is None:
                return subject.grade(verdict.result, verdict.explanation, self._checked)
            state = await self._state()  # whatever the checks did to theirs
        if subject.task.rubric is None:
            raise NoVerdict("the task has no rubric, and its agent no checks any more")
        grader = ModelGrader(self._deps, self._claimed.claim, subject, state, [self._meter], self._control.drain)
        async for self._said in grader.verdicts():
            pass
        await grader.forget()
        return self._by_model()

    def _by_model(self) -> Grade | None:
        if self._said is None:
            return None
        subject = self._subject
        verdict, unverified = relied_on(self._said, subject.wanted)
        criteria = (*self._checked, *recorded(verdict.criteria, "model"))
        return subject.grade(verdict.result, verdict.explanation, criteria, unverified=unverified)

    def finished(self) -> Outcome:
        """It ended by itself."""
        return self._with_verdict(self._grade) if self._grade else self.failed(NoVerdict("it ended without one"))

    def failed(self, error: BaseException) -> Graded:
        """A grader's error ends the task well, and its grade says so: the agent did its work."""
        known = Failed.by(error)
        return self._without_verdict(known.type, known.message)

    def stopped(self, reason: Stop) -> Outcome:
        """A limit of the grader ends the task well too. Where it ended a second try, the first answer stands."""
        grade = self._grade or self._by_model()
        if grade is not None:
            return self._with_verdict(grade)
        match reason:
            case Stop.TIMED_OUT:
                limit = self.task.limits.timeout_seconds or 0
                return self._without_verdict("timeout", f"it had no verdict after {limit:g} s")
            case _:
                remedy = "raise it, or take a model that calls tools"
                said = f"{self._meter.why(reason)}: it had no verdict by then ({remedy})"
                return self._without_verdict(reason.value, said)

    def _with_verdict(self, grade: Grade) -> Graded:
        revises = grade.result is GradeResult.NEEDS_REVISION
        return Graded(grade, self._subject.result_json, revision(grade) if revises else "")

    def _without_verdict(self, kind: str, message: str) -> Graded:
        return Graded(self._subject.error(kind, message), self._subject.result_json, type=kind, message=message)


def _by_itself(task: Task) -> Task:
    """The task as the limits of a grade run see it: only what its graders have used counts."""
    limits, used = task.limits, task.usage_counted.grader or Usage()
    own = Limits(
        timeout_seconds=limits.timeout_seconds or GRADER_SECONDS,
        max_turns=limits.max_turns or GRADER_TURNS,
        max_tokens=limits.max_tokens,
        max_output_tokens=limits.max_output_tokens,
    )
    counted = {"usage": used, "usage_noted": None, "usage_before": used, "working_ms": 0}
    return task.model_copy(update={"limits": own, **counted})
