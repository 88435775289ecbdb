"""The checkpoint saver: LangGraph's state in plain Redis, fenced by the claim of the run that writes it.

Latest is what the last put made the head, never the greatest id: ids follow the clock of the host that made them.
One put and one `put_writes` are one script, so each is wholly there or not at all. Nothing expires.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, get_checkpoint_metadata

from .checkpoint_cells import Cells
from .checkpoint_layout import ASIDE, entry, every_key, owner_of, read_record, thread_keys, write_record
from .checkpoint_reader import CheckpointReader, config_of
from .chunks import chunks
from .errors import BadInput, ClaimLost
from .notification import CURSOR
from .notification_text import last_seq
from .on_loop import blocking, wait_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import redis.asyncio
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from .checkpoint_layout import ThreadKeys
    from .context import Claim
    from .keys import Keys

SLACK = 16  #: checkpoints beyond `keep_steps` that gather before they are pruned together
PAGE = 64  #: checkpoints, or namespaces, that one script call drops at most
REFUSED, INCOMPLETE = -1, -2  #: what a script that writes answers instead of writing

Part = str | bytes | int


class RedisSaver(CheckpointReader):
    """Checkpoints of LangGraph in Redis.

    Make it on the loop that runs the graph; its sync methods may be called from other threads. `redis` returns bytes
    (`decode_responses=False`). With a `claim`, each write is refused once that claim was replaced: the claim is marked
    stale and `ClaimLost` raised. Without one it reads, and writes unfenced. The last `keep_steps` checkpoints of each
    namespace stay, and of older ones what delta channels need.
    """

    def __init__(
        self,
        redis: redis.asyncio.Redis,
        keys: Keys,
        claim: Claim | None = None,
        keep_steps: int = 20,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(redis, keys, Cells(remember=claim is not None), serde)
        self._claim, self._keep = claim, max(1, keep_steps)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, or the head of its namespace; `None` where there is none."""
        # Where nobody held the task before there is nothing to ask for: a short run is one round trip shorter.
        return None if self._is_new(str(config["configurable"]["thread_id"])) else await super().aget_tuple(config)

    def _is_new(self, thread_id: str) -> bool:
        claim = self._claim
        return claim is not None and claim.epoch == 1 and not claim.saved and claim.task_id == thread_id

    def get_next_version(self, current: int | None, channel: None) -> int:  # noqa: ARG002 - the base class's
        """Return the next version of a channel. Its low half is random, so two branches never share one."""
        return (((current or 0) >> 32) + 1) << 32 | random.getrandbits(32)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint and make it the head of its namespace. The same one again replaces it."""
        conf = config["configurable"]
        thread_id, ns = str(conf["thread_id"]), conf.get("checkpoint_ns", "")
        keys = thread_keys(self._keys, thread_id, ns)
        rest = {name: value for name, value in checkpoint.items() if name not in ASIDE}
        payload = self.serde.dumps_typed((rest, get_checkpoint_metadata(config, metadata)))
        record = write_record(conf.get("checkpoint_id") or "", checkpoint, metadata, payload)
        values = checkpoint["channel_values"]

        def cells(fresh: dict[bytes, bytes]) -> Iterator[Part]:
            yield record
            for channel, version in new_versions.items():
                if channel in values:
                    yield entry(channel, version)
                    yield self._cells.write(self.serde, values[channel], keys.pool, fresh)

        # A grader's conversation has a thread of its own.
        of_task = self._claim is not None and thread_id == self._claim.task_id and not ns
        has_input = of_task and metadata.get("source") == "input"
        cursor = self._cursor(values, has_input=has_input) if of_task else ""
        owner = owner_of(ns, metadata.get("parents"))
        head = [thread_id, ns, owner, checkpoint["id"], cursor, int(has_input)]
        if await self._store("put", keys, head, cells) >= self._keep + SLACK:
            await self._prune_old(thread_id, ns)
        return config_of(thread_id, ns, checkpoint["id"])

    def _cursor(self, values: dict[str, Any], *, has_input: bool) -> Part:
        """The last notification that a checkpoint holds: the record learns of it in the same step.

        It is what the run was given, once its input is saved, or what the parents' middleware took in since. Where that
        works in an agent within the graph, the graph's state has no cursor, and its messages tell.
        """
        claim = self._claim
        if claim is None:
            return ""
        given = claim.inbox_to if has_input else 0
        taken = int(values.get(CURSOR) or 0)
        if claim.taken and CURSOR not in values:
            taken = min(claim.taken, last_seq(values.get("messages")))
        return max(given, taken) or ""

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote on a checkpoint. An ordinary write that is there stays; a special one is replaced."""
        conf = config["configurable"]
        thread_id, ns = str(conf["thread_id"]), conf.get("checkpoint_ns", "")
        keys = thread_keys(self._keys, thread_id, ns)

        def cells(fresh: dict[bytes, bytes]) -> Iterator[Part]:
            yield task_id
            yield task_path
            for at, (channel, value) in enumerate(writes):
                yield WRITES_IDX_MAP.get(channel, at)
                yield channel
                yield self._cells.write(self.serde, value, keys.pool, fresh)

        head = [thread_id, ns, owner_of(ns, conf.get("checkpoint_map")), conf["checkpoint_id"]]
        await self._store("writes", keys, head, cells)

    async def _store(
        self,
        name: str,
        keys: ThreadKeys,
        head: Sequence[Part],
        cells: Callable[[dict[bytes, bytes]], Iterator[Part]],
    ) -> int:
        """Run a script with cells and the segments that its pool may lack; once more with all, where one was gone."""
        while True:
            fresh: dict[bytes, bytes] = {}
            rest = list(cells(fresh))
            segments: list[Part] = [part for pair in fresh.items() for part in pair]
            reply: int = await self._change(name, keys, [*head, len(fresh), *segments, *rest])
            if reply != INCOMPLETE:
                self._cells.note_stored(keys.pool, fresh)
                return reply
            self._cells.forget_stored()

    async def _change(self, name: str, keys: Sequence[str], args: Sequence[Part]) -> Any:
        """Run a script that writes, under the claim where there is one."""
        claim = self._claim
        if claim is None:
            return await self._call(name, keys, ["", "", "", *args])
        reply = REFUSED
        if not claim.stale:
            claim.saved = True
            fence: list[Part] = [claim.run_id, claim.epoch, claim.token]
            reply = await self._call(name, [*keys, self._keys.task(claim.task_id)], [*fence, *args])
        if reply == REFUSED:
            claim.mark_stale()
            raise ClaimLost(claim.task_id, claim.run_id)
        return reply

    # pruning
    async def _prune_old(self, thread_id: str, ns: str) -> None:
        """Prune a namespace, and drop the subgraphs' namespaces whose step went with it."""
        gone = await self._prune(thread_id, ns, self._keep)
        if not gone:
            return
        inner = tuple(f"{name}|" for name in gone)
        gone += [name for name in await self._namespaces(thread_id) if name.startswith(inner) and name not in gone]
        keys = thread_keys(self._keys, thread_id, ns)
        for page in chunks(gone, PAGE):
            theirs = [thread_keys(self._keys, thread_id, name) for name in page]
            also = [key for one in theirs for key in (one.state, one.order)]
            await self._change("drop", [*keys, *also], [thread_id, ns, "", *page])

    async def _prune(self, thread_id: str, ns: str, keep: int | None, ids: Sequence[str] = ()) -> list[str]:
        """Keep so many of the newest, or drop those named. Returns the namespaces that lost their owner by it."""
        keys, limit = thread_keys(self._keys, thread_id, ns), "" if keep is None else keep
        while True:
            left, *gone = await self._change("prune", keys, [thread_id, ns, "", limit, PAGE, *ids])
            if not left:
                return [name.decode() for name in gone]

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace (`keep_latest`), or nothing (`delete`)."""
        if strategy not in {"keep_latest", "delete"}:
            raise BadInput(f"prune strategy {strategy!r} is unknown: use 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread_id)
            else:
                for ns in await self._namespaces(thread_id):
                    await self._prune(thread_id, ns, 1)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what these runs stored, in any thread; what delta channels of later runs need of it stays.

        It reads the record of every checkpoint there is.
        """
        for thread_id in await self._threads() if run_ids else []:
            for ns in await self._namespaces(thread_id):
                ids = await self._ids(thread_id, ns)
                doomed = [name for name in ids if await self._run_of(thread_id, ns, name) in run_ids]
                if doomed:
                    await self._prune(thread_id, ns, None, doomed)

    async def _run_of(self, thread_id: str, ns: str, checkpoint_id: str) -> str | None:
        state = thread_keys(self._keys, thread_id, ns).state
        record: bytes | None = await self._redis.hget(state, f"c{checkpoint_id}")  # type: ignore[assignment]
        _, metadata = self.serde.loads_typed(read_record(record).payload) if record else (None, {})
        run_id: str | None = metadata.get("run_id")
        return run_id

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete every key of a thread. One that is not there is no error."""
        done = 0
        while not done:
            names = await self._index(thread_id)
            keys = every_key(self._keys, thread_id, names)
            done = await self._call("delete", [self._keys.threads(), *keys], [thread_id, len(names)])

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Make a thread a whole copy of another; what it held before is gone. No source, no target."""
        if source_thread_id == target_thread_id:
            return
        await self.adelete_thread(target_thread_id)
        done = 0
        while not done:
            names = await self._index(source_thread_id)
            if not names:
                return
            source = every_key(self._keys, source_thread_id, names)
            target = every_key(self._keys, target_thread_id, names)
            pairs = [key for pair in zip(source, target, strict=True) for key in pair]
            done = await self._call("copy", [self._keys.threads(), *pairs], [target_thread_id, len(names)])

    # the sync face
    async def _all(self, *args: Any, **kwargs: Any) -> list[CheckpointTuple]:
        return [found async for found in self.alist(*args, **kwargs)]

    def list(self, *args: Any, **kwargs: Any) -> Iterator[CheckpointTuple]:
        """Return what `alist` yields."""
        return iter(wait_on(self.loop, self._all(*args, **kwargs)))

    get_tuple = blocking(CheckpointReader.aget_tuple)
    get_delta_channel_history = blocking(CheckpointReader.aget_delta_channel_history)
    put = blocking(aput)
    put_writes = blocking(aput_writes)
    prune = blocking(aprune)
    delete_for_runs = blocking(adelete_for_runs)
    delete_thread = blocking(adelete_thread)
    copy_thread = blocking(acopy_thread)
