"""The reading half of the checkpoint saver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)

from .checkpoint_layout import Reply, Write, channel_of, in_order, read_record, script, thread_keys
from .on_loop import current_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import redis.asyncio
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from .checkpoint_cells import Cells
    from .keys import Keys


class CheckpointReader(BaseCheckpointSaver[int]):
    """Reads checkpoints. The latest one is the head that the last put set, whatever the ids say."""

    def __init__(
        self, redis: redis.asyncio.Redis, keys: Keys, cells: Cells, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde)
        self._redis, self._keys, self._cells = redis, keys, cells
        self.loop = current_loop()  #: where the sync face does its work

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[str | bytes | int]) -> Any:
        return await script(name).run(self._redis, keys, args)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, or the head of its namespace; `None` where there is none."""
        conf = config["configurable"]
        thread_id, ns = str(conf["thread_id"]), conf.get("checkpoint_ns", "")
        keys = thread_keys(self._keys, thread_id, ns)
        reply = await self._call("get", keys[:2], [get_checkpoint_id(config) or ""])
        return None if reply is None else self._tuple(thread_id, ns, Reply(reply))

    async def kept(self, thread_id: str) -> list[CheckpointTuple]:
        """Return the heads of the subgraphs of a thread that keep their state from one step to the next."""
        # Any other has the id of its step's task in its namespace, after a colon.
        names = [ns for ns in await self._namespaces(thread_id) if ns and ":" not in ns]
        found = [await self.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}) for ns in names]
        return [each for each in found if each is not None]

    def _tuple(self, thread_id: str, ns: str, reply: Reply) -> CheckpointTuple:
        checkpoint_id, record = reply.take().decode(), read_record(reply.take())
        stored = list(reply.cells())
        writes = in_order([reply.write() for _ in range(reply.take())])
        segments = reply.segments()
        rest, metadata = self.serde.loads_typed(record.payload)
        checkpoint = {
            **rest,
            "id": checkpoint_id,
            "channel_versions": record.versions,
            "channel_values": {channel_of(name): self._cells.read(self.serde, cell, segments) for name, cell in stored},
        }
        return CheckpointTuple(
            config_of(thread_id, ns, checkpoint_id),
            cast("Checkpoint", checkpoint),
            metadata,
            config_of(thread_id, ns, record.parent) if record.parent else None,
            [(write.task, write.channel, self._cells.read(self.serde, write.cell, segments)) for write in writes],
        )

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the base class's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, the last put first, of a namespace, of a thread, or of all threads."""
        conf: dict[str, Any] = config["configurable"] if config else {}
        only, until = conf.get("checkpoint_id"), get_checkpoint_id(before) if before else None
        left = limit
        for thread_id in [str(conf["thread_id"])] if config else await self._threads():
            named = conf.get("checkpoint_ns")
            for ns in await self._namespaces(thread_id) if named is None else [named]:
                for checkpoint_id in await self._ids(thread_id, ns, until):
                    if left == 0:
                        return
                    if only and checkpoint_id != only:
                        continue
                    found = await self.aget_tuple(config_of(thread_id, ns, checkpoint_id))
                    if found is None or not filter_matches(found, filter):
                        continue
                    left = None if left is None else left - 1
                    yield found

    async def _threads(self) -> list[str]:
        ids = cast("set[bytes]", await self._redis.smembers(self._keys.threads()))
        return sorted(name.decode() for name in ids)

    async def _index(self, thread_id: str) -> list[bytes]:
        """Return the fields of a thread's index: one for each namespace, and the put number."""
        return cast("list[bytes]", await self._redis.hkeys(thread_keys(self._keys, thread_id, "").spaces))

    async def _namespaces(self, thread_id: str) -> list[str]:
        return sorted(name.decode()[1:] for name in await self._index(thread_id) if name[:1] == b"n")

    async def _ids(self, thread_id: str, ns: str, before: str | None = None) -> list[str]:
        """Ids of a namespace, the last put first. `before` may name a checkpoint of an outer graph, too."""
        order = thread_keys(self._keys, thread_id, ns).order
        number = None if before is None else await self._number(thread_id, ns, before)
        until = "+inf" if number is None else f"({number:.0f}"
        found = cast("list[bytes]", await self._redis.zrevrangebyscore(order, until, "(0"))
        ids = [name.decode() for name in found]
        # An id that is not here any more can only be compared by the time in it.
        return ids if before is None or number is not None else [name for name in ids if name < before]

    async def _number(self, thread_id: str, ns: str, checkpoint_id: str) -> float | None:
        """Return the put number of a checkpoint of this namespace or of one around it."""
        parts = ns.split("|")
        for outer in [ns, *("|".join(parts[:depth]) for depth in range(len(parts)))]:
            number: float | None = await self._redis.zscore(
                thread_keys(self._keys, thread_id, outer).order, checkpoint_id
            )
            if number is not None:
                return abs(number)
        return None

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return, by channel, the nearest value that an ancestor stored and the writes since, in one round trip."""
        if not channels:
            return {}
        conf = config["configurable"]
        keys = thread_keys(self._keys, str(conf["thread_id"]), conf.get("checkpoint_ns", ""))
        reply = Reply(await self._call("history", keys[:2], [get_checkpoint_id(config) or "", *channels]))
        seeds = list(reply.cells())
        steps: dict[int, list[Write]] = {}
        for _ in range(reply.take()):
            steps.setdefault(reply.take(), []).append(reply.write())
        segments = reply.segments()
        history: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        for back in sorted(steps, reverse=True):
            for write in in_order(steps[back]):
                value = self._cells.read(self.serde, write.cell, segments)
                history[write.channel]["writes"].append((write.task, write.channel, value))
        for channel, cell in seeds:
            history[channel]["seed"] = self._cells.read(self.serde, cell, segments)
        return history


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def filter_matches(found: CheckpointTuple, wanted: Mapping[str, Any] | None) -> bool:
    """Whether a checkpoint's metadata has all that is wanted."""
    return not wanted or all(found.metadata.get(name) == value for name, value in wanted.items())
