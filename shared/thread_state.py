"""The state of a thread, read from its checkpoints alone: no graph is needed, so no agent is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import add_messages
from langgraph.types import Overwrite

from .checkpoints import RedisSaver

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis.asyncio
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import DeltaChannelHistory

    from .keys import Keys

#: Channels of LangGraph's own: triggers of nodes and what waits between steps.
_INTERNAL = ("__", "branch:", "start:", "join:")


async def read_state(redis: redis.asyncio.Redis, keys: Keys, thread_id: str) -> dict[str, Any]:
    """The values of the latest checkpoint by channel; empty where there is none. Messages are LangChain's objects.

    A delta channel is restored from its last snapshot and the writes since: messages are merged by their ids, objects
    by key (`None` takes a key away), lists are appended to; the reducer itself is known to the graph alone.
    """
    saver = RedisSaver(redis, keys)
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    saved = await saver.aget_tuple(config)
    if saved is None:
        return {}
    values = {name: _value(value) for name, value in saved.checkpoint["channel_values"].items() if _shown(name)}
    # What else has no value is empty: a channel that holds for one step has a version and old writes too.
    deltas = saved.metadata.get("counters_since_delta_snapshot") or {}
    missing = [name for name in deltas if _shown(name) and name not in values]
    if missing:
        histories = await saver.aget_delta_channel_history(config=saved.config, channels=missing)
        values |= {
            name: _replayed(history) for name, history in histories.items() if history["writes"] or "seed" in history
        }
    return values


def _shown(channel: str) -> bool:
    return not channel.startswith(_INTERNAL)


def _value(value: Any) -> Any:
    return value.value if isinstance(value, _DeltaSnapshot) else value


def _replayed(history: DeltaChannelHistory) -> Any:
    value = _value(history.get("seed"))
    for _, _, write in history["writes"]:
        value = _value_of_overwrite(write) if _is_overwrite(write) else _merged(value, write)
    return value


def _is_overwrite(write: Any) -> bool:
    return isinstance(write, Overwrite) or (isinstance(write, dict) and set(write) == {"__overwrite__"})


def _value_of_overwrite(write: Any) -> Any:
    return write.value if isinstance(write, Overwrite) else write["__overwrite__"]


def _merged(value: Any, write: Any) -> Any:
    if write is None:
        return value
    if isinstance(write, dict) and isinstance(value, dict | None):
        return {key: item for key, item in {**(value or {}), **write}.items() if item is not None}
    items = write if isinstance(write, list) else [write]
    if _are_messages(items) or (isinstance(value, list) and _are_messages(value)):
        return add_messages(value or [], items)
    return [*(value or []), *items] if isinstance(write, list) else write


def _are_messages(items: Sequence[Any]) -> bool:
    return any(isinstance(item, BaseMessage) for item in items)
