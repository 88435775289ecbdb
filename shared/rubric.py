"""The rubric: what "done" means for a task, as its grader reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from .errors import BadInput
from .ids import shorten
from .limits import PositiveInt  # noqa: TC001 pydantic reads it
from .record_base import Record
from .text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_RUBRIC = 50_000  #: characters: a grader reads it whole, each time
PER_MESSAGE = 4_000  #: characters of a message that a grader reads
MAX_ITERATIONS, DEFAULT_ITERATIONS = 100, 3


def _said(value: object) -> object:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text that is not empty")
    return clean(value)


Said = Annotated[str, BeforeValidator(_said)]


class Rubric(Record):
    """What a grader judges a task's work by, line by line.

    `max_iterations` is how often the work is graded at most; the work goes back to the agent one time less. `model` is
    a name for LangChain's `init_chat_model`, or a `path.py:name`; without it the one of `langgraph.json` is taken.
    `tools` are names of the grader's tools there; without it the grader gets all of them. A rubric that cannot
    be used raises `BadInput`.
    """

    text: Annotated[Said, Field(max_length=MAX_RUBRIC)]
    max_iterations: Annotated[PositiveInt, Field(le=MAX_ITERATIONS)] = DEFAULT_ITERATIONS
    model: Said | None = None
    tools: tuple[Said, ...] | None = None

    def __init__(self, text: str, **fields: Any) -> None:
        try:
            super().__init__(**{"text": text, **fields})
        except ValidationError as error:
            raise BadInput(f"rubric: {_fault(error, {'text': text, **fields})}") from None

    @classmethod
    def check(cls, value: Rubric | Mapping[str, Any] | str | None, where: str = "rubric") -> Rubric | None:
        """Build a rubric from what a caller or a file gave; a bad one raises `BadInput` that names the fault."""
        if value is None or isinstance(value, Rubric):
            return value
        given = {"text": value} if isinstance(value, str) else value
        try:
            return cls(**{"text": None, **dict(given)})
        except BadInput as error:
            raise BadInput(f"{where}{str(error).removeprefix('rubric')}") from None
        except (TypeError, ValueError):
            raise BadInput(f"{where}: must be text, or an object with {', '.join(cls.model_fields)}") from None


_MUST = {
    "text": "must be text that is not empty",
    "max_iterations": f"must be a whole number from 1 to {MAX_ITERATIONS}",
    "model": "must be text that is not empty",
    "tools": "must be a list of names",
}


def _fault(error: ValidationError, given: Mapping[str, Any]) -> str:
    fault = error.errors()[0]
    name = str(fault["loc"][0])
    if name not in _MUST:
        return f"unknown key {shorten(repr(name))} (known: {', '.join(_MUST)})"
    if fault["type"] == "too_long":
        length = fault["ctx"]["actual_length"]
        return f"{name}: has {length:,} characters, more than the {MAX_RUBRIC:,} that a grader reads"
    return f"{name}: {_MUST[name]}, and is {shorten(repr(given[name]))}"
