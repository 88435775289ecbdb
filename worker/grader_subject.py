"""What a grade run grades: the work, the grades that it had before, and the grade that a verdict makes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..shared.grades import Grade, GradeResult, explained, frozen
from ..shared.messages import input_id
from ..shared.rubric import DEFAULT_ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..shared.grades import GradedCriterion
    from ..shared.records import Run, Task
    from ..shared.store import Store


@dataclass(frozen=True, slots=True)
class Subject:
    """A task whose work is graded by `run`."""

    task: Task  #: with its runs
    run: Run
    result_json: str  #: the result that is graded
    history: tuple[Grade, ...]  #: of the same grading run, oldest first
    request: str = ""  #: the beginning of the text that it was submitted with
    reads: bool = True  #: whether its agent has messages, and so a place for what a grader says

    @classmethod
    async def of(cls, store: Store, task_id: str, run: Run) -> Subject:
        """Read it."""
        task, result = await store.get(task_id), await store.result_json(task_id)
        request = await store.request(task_id)
        graded = [one.grade for one in task.runs or () if one.grade]
        history = tuple(grade for grade in graded if grade.grading_run_id == task.grading_run_id)
        return cls(task, run, result, history, request)

    @property
    def grading_run_id(self) -> str:
        """The same for all gradings until the task ends."""
        return self.task.grading_run_id or self.run.run_id

    @property
    def iteration(self) -> int:
        """Of this grading, from 0."""
        return len(self.history)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names of the criteria that a model must account for; empty for the first one that does."""
        return frozen(self.history)

    @property
    def asked_id(self) -> str | None:
        """Id of the message that the task began with."""
        return input_id(self.task.runs[0].run_id) if self.task.runs else None

    @property
    def result(self) -> Any:
        """The result as a JSON value."""
        return json.loads(self.result_json) if self.result_json else None

    def grade(
        self,
        result: str,
        explanation: str,
        criteria: Sequence[GradedCriterion] = (),
        *,
        unverified: bool = False,
    ) -> Grade:
        """What is recorded of a verdict. Work that was graded often enough does not go back any more."""
        most = self.task.rubric.max_iterations if self.task.rubric else DEFAULT_ITERATIONS
        most = most if self.reads else 1
        if result == GradeResult.NEEDS_REVISION and self.iteration + 1 >= most:
            result = GradeResult.MAX_ITERATIONS_REACHED
        return Grade(
            result=GradeResult(result),
            explanation=explained(explanation),
            iteration=self.iteration,
            criteria=tuple(criteria),
            unverified=unverified,
            grading_run_id=self.grading_run_id,
            graded_run_id=self.run.of_run or "",
            result_sha256=hashlib.sha256(self.result_json.encode()).hexdigest(),
        )

    def error(self, kind: str, message: str) -> Grade:
        """What is recorded where there is no verdict: the grader failed, not the work."""
        return self.grade(GradeResult.GRADER_ERROR, f"The grader failed: {kind}{f': {message}' if message else ''}")
