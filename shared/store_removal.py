"""The store's removal of old trees: hidden as a whole in one step, then removed piece by piece by any sweeper."""

from __future__ import annotations

from .chunks import chunks
from .scripts import Argument
from .statuses import Status
from .store_base import StoreBase
from .transitions import Remains

PAGE = 20  #: trees that are looked at together, and tasks that are removed together
CHUNK = 500  #: tasks of a tree that are read at once, and runs that are removed at once


class Removal(StoreBase):
    """The part of the store that removes what is old."""

    async def old_trees(self, *, older_than_ms: int) -> tuple[str, ...]:
        """Roots of trees that seem to be so old, the oldest first; `condemn` looks at all tasks of the tree."""
        before = await self.now_ms() - older_than_ms
        roots = await self.redis.zrangebyscore(self.keys.trees(), "-inf", before, start=0, num=PAGE)
        return tuple(root.decode() for root in roots)

    async def condemn(self, root_id: str, *, older_than_ms: int) -> bool:
        """Hide a tree whose tasks have all ended so long ago; `False`: it stays as it is."""
        keys, args = [self.keys.trees(), self.keys.condemned()], list[Argument]([older_than_ms])
        level = [root_id]
        while level:
            below: list[str] = []
            for chunk in chunks(level, CHUNK):
                async with self.redis.pipeline(transaction=False) as pipe:
                    for task_id in chunk:
                        pipe.zrange(self.keys.children(task_id), 0, -1)
                        pipe.hget(self.keys.task(task_id), "idempotency_key")
                    rows = await pipe.execute()
                args += chunk
                for task_id, children, key in zip(chunk, rows[::2], rows[1::2], strict=True):
                    record = self.keys.task(task_id)
                    keys += [record, self.keys.remains(task_id), self.keys.idempotency(key.decode()) if key else record]
                    below += [child.decode() for child in children]
            level = below
        return bool(await self._scripts("condemn", keys, args))

    async def condemned(self) -> tuple[str, ...]:
        """Some tasks of which something is still to be removed."""
        return tuple(task_id.decode() for task_id in await self.redis.zrange(self.keys.condemned(), 0, PAGE - 1))

    async def remains(self, task_id: str) -> Remains:
        """What is left of a condemned task."""
        fields = await self.redis.hmget(self.keys.remains(task_id), ["agent", "parent_id"])
        run_ids = [run_id.decode() for run_id in await self.redis.lrange(self.keys.runs(task_id), 0, -1)]
        async with self.redis.pipeline(transaction=False) as pipe:
            for run_id in run_ids:
                pipe.hget(self.keys.run(run_id), "kind")
            kinds = [(kind or b"").decode() for kind in await pipe.execute()]
        agent, parent_id = ((field or b"").decode() for field in fields)
        return Remains(task_id, agent, not parent_id, tuple(zip(run_ids, kinds, strict=True)))

    async def erase(self, remains: Remains) -> None:
        """Remove a condemned task's runs, its keys and its places in the indexes. A second call changes nothing."""
        keys, task_id = self.keys, remains.task_id
        for chunk in chunks([run_id for run_id, _ in remains.runs], CHUNK):
            of_run = (keys.run, keys.input, keys.delivery)
            await self.redis.unlink(*(key(run_id) for run_id in chunk for key in of_run))
            # Code of a run that was cancelled long ago may still be at work, or its worker may be lost.
            held = (keys.leases(), keys.ring_at(), keys.answer_until(), keys.slots(remains.agent))
            for index in (keys.deliveries(), keys.undelivered(), *held):
                await self.redis.zrem(index, *(f"{task_id}/{run_id}" for run_id in chunk))
        async with self.redis.pipeline(transaction=True) as pipe:
            pipe.unlink(*keys.of_task(task_id), keys.remains(task_id))
            for index in (keys.tasks(), keys.agent(remains.agent), keys.closing(), keys.condemned()):
                pipe.zrem(index, task_id)
            for status in Status:
                pipe.zrem(keys.status(status), task_id)
            await pipe.execute()
