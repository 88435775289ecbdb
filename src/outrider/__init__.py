"""Background subagents for LangGraph and deepagents on Celery and Redis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .orchestrator.client import Outrider
    from .orchestrator.middleware import BackgroundSubagents
    from .orchestrator.sync import connect
    from .shared.errors import OutriderError
    from .shared.limits import Limits
    from .shared.notification import Notification
    from .shared.progress import progress
    from .shared.records import Run, Task
    from .shared.rubric import Rubric
    from .shared.statuses import Status
    from .shared.tree_files import running_tree

__all__ = [
    "BackgroundSubagents",
    "Limits",
    "Notification",
    "Outrider",
    "OutriderError",
    "Rubric",
    "Run",
    "Status",
    "Task",
    "connect",
    "progress",
    "running_tree",
]

# Imported when they are first asked for: the command line answers `--help` without Redis and pydantic, and a worker
# sets LangGraph's environment before LangGraph is imported.
_HOMES = {
    "BackgroundSubagents": ".orchestrator.middleware",
    "Limits": ".shared.limits",
    "Notification": ".shared.notification",
    "Outrider": ".orchestrator.client",
    "OutriderError": ".shared.errors",
    "Rubric": ".shared.rubric",
    "Run": ".shared.records",
    "Status": ".shared.statuses",
    "Task": ".shared.records",
    "connect": ".orchestrator.sync",
    "progress": ".shared.progress",
    "running_tree": ".shared.tree_files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
