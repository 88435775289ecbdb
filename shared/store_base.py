"""The base of the store's parts: its scripts, and the keys that each of them begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .limits import MAX_PENDING
from .store_queries import Queries

if TYPE_CHECKING:
    import redis.asyncio

    from .family_keys import Family
    from .transitions import Facts


class StoreBase(Queries):
    """What every part of the store has: it reads, and runs scripts."""

    def __init__(
        self,
        redis: redis.asyncio.Redis,
        namespace: str,
        *,
        ring_again_ms: int = 60_000,
        max_pending: int = MAX_PENDING,
    ) -> None:
        super().__init__(redis, namespace)
        self._ring_again_ms, self._max_pending = ring_again_ms, max_pending

    def _task_keys(self, facts: Facts, run_id: str | None) -> list[str]:
        """KEYS 1 to 17 of the prelude. Without a run, the task's own key stands in the places of the run's keys."""
        keys = self.keys
        task = keys.task(facts.task_id)
        return [
            task,
            keys.run(run_id) if run_id else task,
            keys.input(run_id) if run_id else task,
            keys.large(facts.task_id),
            keys.events(facts.task_id),
            keys.runs(facts.task_id),
            keys.leases(),
            keys.ring_at(),
            keys.slots(facts.agent),
            *keys.statuses(),
        ]

    def _ending_keys(self, facts: Facts, run_id: str | None, family: Family, told_by: str) -> list[str]:
        """KEYS 1 to 33 of a script that may end a task; `told_by` is the run by which the end is told."""
        keys = self.keys
        more = [keys.answer_until(), keys.follow_ups(facts.task_id), keys.deliveries(), keys.delivery(told_by)]
        return [*self._task_keys(facts, run_id), *family.keys, *more]

    def _ancestor_keys(self, facts: Facts) -> list[str]:
        """The last KEYS of a script that looks upwards: the ancestors, root first, then the tree's snapshots."""
        return [*(self.keys.task(ancestor) for ancestor in facts.ancestors), self.keys.snapshots(facts.root_id)]


def pairs_of(members: list[bytes]) -> tuple[tuple[str, str], ...]:
    """`(task_id, run_id)` of members of the clockwork's sets."""
    pairs = (member.decode().partition("/") for member in members)
    return tuple((task_id, run_id) for task_id, _, run_id in pairs)
