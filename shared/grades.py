"""Verdicts, which graders give, and grades, which are recorded; and the criteria that a verdict must account for."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, StringConstraints, model_validator

from .record_base import Record
from .text import clean, clip

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_EXPLANATION = 4_000  #: characters in the record, as for the other two
MAX_NAME = 400
MAX_GAP = 2_000
MAX_CRITERIA = 100


class GradeResult(StrEnum):
    """What is recorded of a grading. Only `needs_revision` sends the work back to the agent."""

    SATISFIED = "satisfied"
    NEEDS_REVISION = "needs_revision"
    FAILED = "failed"  #: the rubric contradicts itself, or cannot be judged
    MAX_ITERATIONS_REACHED = "max_iterations_reached"  #: still not satisfied, and it was graded often enough
    GRADER_ERROR = "grader_error"  #: the grader, not the work


def _storable(value: object) -> object:
    return clean(value) if isinstance(value, str) else value  # half a character is no text to pydantic


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), BeforeValidator(_storable)]
Name = Annotated[
    Text,
    Field(
        description="What this criterion checks, so exactly that someone else could judge it without the rubric. "
        "Use the same words each time."
    ),
]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Passed(_Strict):
    """A criterion that the work meets."""

    name: Name
    passed: Literal[True]


class Missed(_Strict):
    """A criterion that the work does not meet, or of which that cannot be confirmed."""

    name: Name
    passed: Literal[False]
    gap: Annotated[Text, Field(description="What is missing or wrong, so that the agent can mend it.")]


Criterion = Annotated[Passed | Missed, Discriminator("passed")]


class Verdict(_Strict):
    """Your verdict on the work."""

    result: Annotated[
        Literal["satisfied", "needs_revision", "failed"],
        Field(
            description="satisfied: every criterion passes. needs_revision: at least one does not. "
            "failed: the rubric contradicts itself or cannot be judged."
        ),
    ]
    explanation: Annotated[
        str, BeforeValidator(_storable), Field(description="The verdict in one or two sentences, for the agent.")
    ]
    criteria: Annotated[
        tuple[Criterion, ...],
        Field(description="One entry for each criterion of the rubric, in its order; none left out, none merged."),
    ]

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        missed = [criterion.name for criterion in self.criteria if not criterion.passed]
        if self.result == "satisfied" and missed:
            raise ValueError(f"the result is satisfied, and this criterion is not met: {missed[0]}")
        if self.result == "needs_revision" and self.criteria and not missed:
            raise ValueError("the result is needs_revision, and every criterion is met: name the one that is not")
        met = {_alike(criterion.name) for criterion in self.criteria if criterion.passed}
        both = [name for name in missed if _alike(name) in met]
        if both:
            raise ValueError(f"this criterion is named twice, as met and as not met: {both[0]}")
        return self


class GradedCriterion(Record):
    """A criterion as it is recorded."""

    name: str
    passed: bool
    gap: str | None = None
    by: Literal["checks", "model"] = "model"  #: who judged it


class NotedGrade(Record):
    """What a parent is told of a grade."""

    result: GradeResult
    explanation: str
    gaps: tuple[str, ...]  #: criteria that are not met, each with what is missing


class Grade(Record):
    """What a grading came to."""

    result: GradeResult
    explanation: str
    iteration: int  #: from 0, within one grading run
    criteria: tuple[GradedCriterion, ...] = ()
    unverified: bool = False  #: the grader said `satisfied` and did not account for every criterion
    grading_run_id: str  #: the same for all gradings until the task ends; that of the first grade run
    graded_run_id: str  #: the agent's run that was graded
    result_sha256: str  #: of the result that was graded, as JSON text

    @property
    def satisfied(self) -> bool:
        """Whether the work is good enough for its rubric."""
        return self.result is GradeResult.SATISFIED

    @property
    def open_gaps(self) -> tuple[GradedCriterion, ...]:
        """The criteria that are not met."""
        return tuple(criterion for criterion in self.criteria if not criterion.passed)

    def noted(self) -> NotedGrade:
        """What a parent is told of it."""
        gaps = () if self.satisfied else tuple(f"{one.name}: {one.gap}" for one in self.open_gaps)
        return NotedGrade(result=self.result, explanation=self.explanation, gaps=gaps)


def recorded(criteria: Iterable[Passed | Missed], by: Literal["checks", "model"]) -> tuple[GradedCriterion, ...]:
    """Criteria of a verdict as they are recorded: cleaned and bounded. Where they are too many, what is open stays."""
    kept = list(criteria)
    if len(kept) > MAX_CRITERIA:
        kept.sort(key=lambda one: one.passed)
    return tuple(
        GradedCriterion(
            name=clip(clean(one.name), MAX_NAME),
            passed=one.passed,
            gap=clip(clean(one.gap), MAX_GAP) if isinstance(one, Missed) else None,
            by=by,
        )
        for one in kept[:MAX_CRITERIA]
    )


def explained(text: str) -> str:
    """An explanation as it is recorded."""
    return clip(clean(text), MAX_EXPLANATION)


def frozen(history: Sequence[Grade]) -> tuple[str, ...]:
    """The criteria that a model must account for: those of the first grading that has some and is not `failed`."""
    for grade in history:
        names = tuple(criterion.name for criterion in grade.criteria if criterion.by == "model")
        if names and grade.result is not GradeResult.FAILED:
            return names
    return ()


def shortfall(verdict: Verdict, wanted: Sequence[str]) -> str | None:
    """Why a verdict's accounting cannot be relied on; `None` where it can. More criteria than wanted are fine."""
    if verdict.result == "failed":
        return None
    if not verdict.criteria:
        return "It accounts for no criterion at all."
    named = {_alike(clip(clean(criterion.name), MAX_NAME)) for criterion in verdict.criteria}
    # By numbers: the names came from a model that had read what agents wrote.
    missing = [f"{number}" for number, name in enumerate(wanted, 1) if _alike(name) not in named]
    if missing:
        return f"It does not account for {len(missing)} of {len(wanted)} criteria: number {', '.join(missing)}."
    return None


_NUMBER = re.compile(r"^\s*\d+[.)]\s+")


def _alike(name: str) -> str:
    """A name as names are compared: without number (graders get a numbered list), spaces, case and full stop."""
    return " ".join(_NUMBER.sub("", name).split()).casefold().rstrip(".")
