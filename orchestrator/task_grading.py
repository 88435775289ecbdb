"""How a task will be graded: the caller's rubric, checked, or the one that `langgraph.json` gives its agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput, UnknownAgent
from ..shared.grader_config import is_file
from ..shared.ids import shorten
from ..shared.queues import GRADERS
from ..shared.rubric import Rubric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..shared.config import AgentEntry, Config

STATE_KEY = "rubric"  #: of an agent that grades itself, as deepagents' `RubricMiddleware` has it


@dataclass(frozen=True, slots=True)
class TaskGrading:
    """By which rubric a task is graded, and on which queue."""

    rubric: Rubric | None
    queue: str | None  #: of its grade runs; `None`: nobody grades it here
    state: dict[str, Any]  #: more input state, for an agent that grades itself


def new_grading(given: Rubric | Mapping[str, Any] | str, agent: str, config: Config) -> TaskGrading:
    """Do what `grading_for` does, for an existing task; `UnknownAgent` where its agent is not named any more."""
    if agent not in config.agents:
        raise UnknownAgent(agent, sorted(config.agents))
    return grading_for(given, config.agents[agent], config)


def grading_for(given: Rubric | Mapping[str, Any] | str | None, entry: AgentEntry, config: Config) -> TaskGrading:
    """Check a rubric, or take the agent's own; `BadInput` where no grader could judge by it."""
    rubric = Rubric.check(given)
    own = entry.grading
    named = {config.grader.model, own.rubric.model if own.rubric else None}
    if rubric is not None and rubric.model not in named and is_file(rubric.model or ""):
        raise BadInput(
            f"rubric: model {shorten(repr(rubric.model))} names a file, which langgraph.json alone may: give a "
            'provider:model, or name it there ("outrider.grader.model", or the agent\'s own rubric)'
        )
    if rubric is None:
        rubric = own.rubric
    elif rubric.model is None and own.rubric is not None:
        rubric = rubric.model_copy(update={"model": own.rubric.model})
    if own.grades_itself:
        return TaskGrading(rubric, None, {STATE_KEY: rubric.text} if rubric else {})
    if rubric is not None:
        if not (rubric.model or config.grader.model):
            raise BadInput(
                'rubric: no model is named that could judge by it: give "outrider": {"grader": {"model": …}} in '
                "langgraph.json, or Rubric(…, model=…)"
            )
        config.grader.chosen(rubric.tools)
    return TaskGrading(rubric, GRADERS if rubric or own.checks else None, {})
