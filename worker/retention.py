"""Retention removes trees of tasks that ended long ago. Every step may be repeated, by any worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ..shared.checkpoints import RedisSaver
from ..shared.filestore import RedisStore
from ..shared.statuses import RunKind
from ..shared.tree_files import tree_namespace

if TYPE_CHECKING:
    from ..shared.settings import Settings
    from ..shared.store import Store

log = structlog.get_logger("outrider.sweeper")


class Retention:
    """Removes old trees: their records, their checkpoints and their files. Made and used on the loop of its store."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._saver = RedisSaver(store.redis, store.keys)
        self._files = RedisStore(store.redis, store.keys)

    async def condemn(self, root_id: str) -> bool:
        """Hide a tree, if all of it ended long ago; whether it was hidden."""
        condemned = await self._store.condemn(root_id, older_than_ms=self._settings.retention_ms)
        if condemned:
            log.info("tree.removed", task_id=root_id)
        return condemned

    async def remove(self, task_id: str) -> bool:
        """Remove all that a condemned task has; its record last, so that what fails is done again."""
        remains = await self._store.remains(task_id)
        for thread_id in (task_id, *_threads(remains.runs)):
            await self._saver.adelete_thread(thread_id)
        if remains.is_root:
            while await self._files.adelete_namespace(tree_namespace(task_id)):
                pass
        await self._store.erase(remains)
        return True


def _threads(runs: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Threads of gradings that ended without a verdict; the others were deleted with them."""
    return tuple(f"{run_id}{again}" for run_id, kind in runs if kind == RunKind.GRADE for again in ("", "-again"))
