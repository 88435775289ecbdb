"""An agent's checks: code that decides what needs no model."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from langchain_core.runnables.config import var_child_runnable_config
from pydantic import ValidationError

from ..shared.grades import Verdict
from ..shared.text import one_line
from .grader_verdict import NoVerdict
from .loading import load
from .upstream import is_question_outside_node

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig

    from ..shared.records import Task

MAX_FAULT = 500  #: characters
NOBODY_ANSWERS = "checks cannot ask a person; ask in the agent before it ends, its state has the answer"


async def checked(target: str, folder: Path, task: Task, state: Mapping[str, Any], config: RunnableConfig) -> Verdict:
    """Call `target`, a callable of the task and its agent's state, plain or async; its verdict, checked.

    It finds `config` as agents do, by LangGraph's `get_config`. A plain one runs in a thread. Whatever importing or
    calling it raises comes through; an answer that is no verdict is `NoVerdict`.
    """
    call = await asyncio.to_thread(load, target, folder)
    outer = var_child_runnable_config.set(config)
    try:
        if inspect.iscoroutinefunction(call):
            verdict = await call(task, state)
        else:
            verdict = await asyncio.to_thread(call, task, state)
            if inspect.isawaitable(verdict):  # of what is async inside: a wrapped one, an object that is called
                verdict = await verdict
    except SystemExit:  # which would else end the loop that all runs share
        raise NoVerdict(f"{target} called sys.exit()") from None
    except KeyError as error:
        if is_question_outside_node(error):
            raise NoVerdict(f"{target} called interrupt(): {NOBODY_ANSWERS}") from None
        raise
    finally:
        var_child_runnable_config.reset(outer)
    try:
        return Verdict.model_validate(verdict)
    except ValidationError as error:
        raise NoVerdict(f"{target} gave no verdict: {one_line(_fault(verdict, error), MAX_FAULT)}") from None


def _fault(verdict: Any, error: ValidationError) -> str:
    if not isinstance(verdict, dict):
        return f"it is of type {type(verdict).__name__}, not an object with result, explanation and criteria"
    fault = error.errors(include_input=False)[0]
    where = ".".join(str(part) for part in fault["loc"] if not isinstance(part, bool))
    return f"{where}: {fault['msg']}" if where else fault["msg"].removeprefix("Value error, ")
