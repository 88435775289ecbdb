"""Agents within an agent that keep a conversation of their own (`checkpointer=True`), from one run to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint

from ..shared.messages import closing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.checkpoint.base import ChannelVersions, CheckpointTuple

    from ..shared.checkpoints import RedisSaver

MESSAGES = "messages"


async def close_kept(saver: RedisSaver, thread_id: str, run_id: str) -> None:
    """Answer the tool calls that earlier runs left open in such conversations: providers refuse them as they are.

    To be called before a run gives its input: LangGraph then drops what a step had not finished. What its tools did by
    then is kept. A conversation in a delta channel is left alone; deepagents closes its own.
    """
    for found in await saver.kept(thread_id):
        messages = found.checkpoint["channel_values"].get(MESSAGES)
        if not isinstance(messages, list) or not all(isinstance(message, BaseMessage) for message in messages):
            continue
        results = {result.tool_call_id: result for result in _results(found)}
        closed = [results.get(each.tool_call_id, each) for each in closing(messages, run_id)]
        if closed:
            await _put(saver, found, [*messages, *closed])


def _results(found: CheckpointTuple) -> Iterator[ToolMessage]:
    """Of tools whose step was not finished."""
    for _, channel, value in found.pending_writes or ():
        if channel == MESSAGES:
            yield from (
                each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ToolMessage)
            )


async def _put(saver: RedisSaver, found: CheckpointTuple, messages: list[Any]) -> None:
    checkpoint, fresh = found.checkpoint, empty_checkpoint()
    versions = checkpoint["channel_versions"]
    version: ChannelVersions = {MESSAGES: saver.get_next_version(max(map(int, versions.values())), None)}
    await saver.aput(
        found.config,
        {
            **checkpoint,
            "id": fresh["id"],
            "ts": fresh["ts"],
            "channel_values": {**checkpoint["channel_values"], MESSAGES: messages},
            "channel_versions": {**versions, **version},
        },
        {**found.metadata, "source": "update", "step": found.metadata.get("step", 0) + 1},
        version,
    )
