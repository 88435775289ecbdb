"""Checks: what code can decide needs no model."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from ..shared.grades import Verdict
from .judging import NoVerdict
from .loading import load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..shared.records import Task


async def checked(target: str, folder: Path, task: Task, state: Mapping[str, Any]) -> Verdict:
    """Call `target`, a callable of the task and its agent's state, plain or async; its verdict, checked.

    A plain one runs in a thread. Whatever importing or calling it raises comes through; an answer that is no verdict is
    a `ValidationError`.
    """
    call = await asyncio.to_thread(load, target, folder)
    try:
        if inspect.iscoroutinefunction(call):
            verdict = await call(task, state)
        else:
            verdict = await asyncio.to_thread(call, task, state)
    except SystemExit:  # which would else end the loop that all runs share
        raise NoVerdict(f"{target} called sys.exit()") from None
    return verdict if isinstance(verdict, Verdict) else Verdict.model_validate(verdict)
