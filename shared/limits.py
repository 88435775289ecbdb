"""What a task may use, and what it used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from .errors import BadInput
from .ids import shorten
from .record_base import Record

if TYPE_CHECKING:
    from collections.abc import Mapping


MOST = 2**53  #: the largest count: scripts in Redis keep no larger number exactly


def _positive(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
        raise ValueError(f"must be a number above zero, at most {MOST:,}")
    return value


def _count(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError(f"must be a whole number from 0 to {MOST:,}")
    return value


Count = Annotated[int, BeforeValidator(_count)]
PositiveInt = Annotated[int, BeforeValidator(_positive), Field(strict=True)]
PositiveSeconds = Annotated[float, BeforeValidator(_positive)]


#: Defaults for the size of trees: they stop an agent that starts tasks without end.
MAX_OPEN_CHILDREN, MAX_DEPTH, MAX_DESCENDANTS = 1_000, 50, 10_000
MAX_PENDING = 100_000  #: tasks that wait for a worker, in all


class Limits(Record):
    """Bounds on what a task may use, counted from one submit, update or wake to the next. `None` is no bound."""

    timeout_seconds: PositiveSeconds | None = None  #: working time; waiting in a queue does not count
    max_turns: PositiveInt | None = None  #: model calls
    max_tokens: PositiveInt | None = None  #: input and output tokens together
    max_output_tokens: PositiveInt | None = None
    idle_seconds: PositiveSeconds | None = None  #: working time without any event
    max_children: Count | None = None  #: tasks that it may start, in its whole life; a fork may start none unless told
    max_open_children: PositiveInt | None = None  #: tasks below it that may be open at once; else `MAX_OPEN_CHILDREN`
    max_depth: PositiveInt | None = None  #: levels of tasks below the root of a tree; else `MAX_DEPTH`
    max_descendants: PositiveInt | None = None  #: tasks that may ever be below the root; else `MAX_DESCENDANTS`

    @classmethod
    def check(cls, values: Limits | Mapping[str, Any] | None, where: str = "limits") -> Limits:
        """Build limits from what a caller or a file gave; a bad one raises `BadInput` that names it."""
        if isinstance(values, Limits):
            return values
        try:
            return cls.model_validate(dict(values or {}))
        except (ValidationError, TypeError, ValueError) as error:
            raise BadInput(f"{where}: {_first_fault(error)} (known limits: {', '.join(cls.model_fields)})") from None

    def of_submits(self) -> dict[str, str]:
        """The limits that a submit below this task is compared with, as fields of the task's record."""
        names = ("max_children", "max_open_children", "max_depth", "max_descendants")
        return {name: str(value) for name in names if (value := getattr(self, name)) is not None}

    def over(self, defaults: Limits) -> Limits:
        """These limits, with `defaults` where this one has none."""
        mine = {name: value for name, value in self if value is not None}
        return defaults.model_copy(update=mine)


def _first_fault(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"{error}"
    fault = error.errors()[0]
    name = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"unknown key {shorten(repr(name))}"
    text = fault["msg"].removeprefix("Value error, ")
    return f"{name} = {shorten(repr(fault['input']))}: {text}"


class Usage(Record):
    """What the models of a task consumed."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    turns: int = 0  #: model calls
    by_model: dict[str, dict[str, int]] = Field(default_factory=dict)
    grader: Usage | None = None  #: what the task's graders consumed, which counts apart

    def plus(self, other: Usage) -> Usage:
        """The sum of both, model by model."""
        return self.plus_times(other, 1)

    def minus(self, other: Usage) -> Usage:
        """This usage less the other, model by model."""
        return self.plus_times(other, -1)

    def plus_times(self, other: Usage, times: int) -> Usage:
        """The sum with so many times the other."""
        by_model = {name: dict(counts) for name, counts in self.by_model.items()}
        for name, counts in other.by_model.items():
            mine = by_model.setdefault(name, {})
            for key, count in counts.items():
                mine[key] = mine.get(key, 0) + times * count
        return Usage(
            input_tokens=self.input_tokens + times * other.input_tokens,
            output_tokens=self.output_tokens + times * other.output_tokens,
            total_tokens=self.total_tokens + times * other.total_tokens,
            turns=self.turns + times * other.turns,
            by_model=by_model,
            grader=(self.grader or Usage()).plus_times(other.grader, times) if other.grader else self.grader,
        )
