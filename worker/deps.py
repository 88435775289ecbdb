"""What a worker process needs to execute runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..shared.bells import Bell
    from ..shared.config import Config
    from ..shared.filestore import RedisStore
    from ..shared.settings import Settings
    from ..shared.store import Store
    from .agents import Agents
    from .control import Held


@dataclass(frozen=True, slots=True)
class Deps:
    """One per process, used on its loop."""

    settings: Settings
    config: Config
    store: Store
    files: RedisStore  #: that every graph gets; not fenced
    agents: Agents
    held: Held
    ring: Callable[[Bell], Awaitable[None]]  #: off the loop
    worker: str  #: its name among Celery's workers, as monitors show it
    deliver: Callable[[], None] = lambda: None  #: look for due deliveries at once
