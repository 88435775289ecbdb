"""What a worker process needs to execute runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..shared.context import Host

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..shared.filestore import RedisStore
    from .agents import Agents
    from .control import Held


@dataclass(frozen=True, slots=True)
class Deps(Host):
    """One per process, used on its loop: what its runs may use too, and what the worker alone does."""

    files: RedisStore  #: that every graph gets; not fenced
    agents: Agents
    held: Held
    worker: str  #: its name among Celery's workers, as monitors show it
    deliver: Callable[[], None] = lambda: None  #: look for due deliveries at once
