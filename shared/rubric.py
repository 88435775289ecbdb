"""The rubric: what "done" means for a task, as its grader reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from .errors import BadInput
from .ids import shorten
from .limits import PositiveInt  # noqa: TC001 pydantic reads it
from .record import Record
from .text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_RUBRIC = 50_000  #: characters: a grader reads it whole, each time
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
    `tools` are names of the grader's tools there; without it the grader gets all of them.
    """

    text: Annotated[Said, Field(max_length=MAX_RUBRIC)]
    max_iterations: Annotated[PositiveInt, Field(le=MAX_ITERATIONS)] = DEFAULT_ITERATIONS
    model: Said | None = None
    tools: tuple[Said, ...] | None = None

    def __init__(self, text: str, **fields: Any) -> None:
        super().__init__(**{"text": text, **fields})

    @classmethod
    def check(cls, value: Rubric | Mapping[str, Any] | str | None, where: str = "rubric") -> Rubric | None:
        """Build a rubric from what a caller or a file gave; a bad one raises `BadInput` that names the fault."""
        if value is None or isinstance(value, Rubric):
            return value
        given = {"text": value} if isinstance(value, str) else value
        try:
            return cls(**{"text": None, **dict(given)})
        except (ValidationError, TypeError, ValueError) as error:
            raise BadInput(f"{where}: {_fault(error)}") from None


def _fault(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "must be text, or an object with text, max_iterations, model and tools"
    fault = error.errors()[0]
    name = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"unknown key {shorten(repr(name))} (known: {', '.join(Rubric.model_fields)})"
    if fault["type"] == "too_long":
        length = fault["ctx"]["actual_length"]
        return f"{name}: has {length:,} characters, more than the {MAX_RUBRIC:,} that a grader reads"
    return f"{name}: {fault['msg'].removeprefix('Value error, ')}"
