"""Forks: a child that begins with its parent's conversation, as the parent's model saw it.

What only concerns the parent is left out: artifacts of its tools, marks of what was put into files, facts of
notifications. Message ids stay, so that a provider's cache holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from .messages import calls_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LC_SOURCE = "outrider_fork"
SUMMARIZATION_EVENT = "_summarization_event"  #: where deepagents keeps its summary; the messages stay whole
FILES = "files"  #: where deepagents keeps files that lie in the state
PAYLOADS = "_blob_payloads"  #: what deepagents read of media in this run, by the names that stand in messages
PAYLOAD_NAME = "deepagents_blob"

_PARENTS_OWN = frozenset({"lc_evicted_to", "outrider_notification", "deepagents_notification"})
_REASONING = frozenset({"thinking", "redacted_thinking", "reasoning_content"})

PREAMBLE = """[The messages above are the conversation of the agent that started you, as it stood then. You are not \
that agent: you are a subagent of it that works in the background, and whatever they say about handing work out has \
been done, by starting you. Take facts, names and numbers from them. Do the task that follows, and only that, \
yourself. Your last message is what that agent gets.]"""


def conversation(state: Mapping[str, Any]) -> list[BaseMessage]:
    """The messages of a parent's state that a child begins with; nothing in it is the parent's object any more.

    A summary stands for what it sums up. Tool calls that are not all answered go with the answers that they have, and
    so does an answer without its call: providers refuse both.
    """
    payloads = state.get(PAYLOADS) or {}
    return [_portable(message, payloads) for message in _seen(state)]


def without_names(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages for an agent that has no files: media that lie in a file are replaced by a mark."""
    return [_marked(message) for message in messages]


def names_of_media(state: Mapping[str, Any]) -> set[str]:
    """The names under which media lie in files, of those that a child begins with."""
    named = (block for message in _seen(state) if isinstance(message.content, list) for block in message.content)
    return {name for block in named if _is_name(block) and isinstance(name := block[PAYLOAD_NAME], str)}


def preamble(run_id: str) -> HumanMessage:
    """The message that tells a forked child who it is; the same for every attempt of its run."""
    return HumanMessage(PREAMBLE, id=f"{run_id}-fork", additional_kwargs={"lc_source": LC_SOURCE})


def _seen(state: Mapping[str, Any]) -> Iterator[BaseMessage]:
    return _answered(_summarized(list(state.get("messages") or ()), state.get(SUMMARIZATION_EVENT)))


def _summarized(messages: list[BaseMessage], event: Any) -> list[BaseMessage]:
    try:
        summary, cutoff = event["summary_message"], int(event["cutoff_index"])
    except (KeyError, TypeError, ValueError):
        return messages
    # Reasoning is bound to what stood before it, and that is gone.
    kept_from = event.get("created_at_index") or cutoff
    tail = enumerate(messages[cutoff:], cutoff)
    return [summary, *(_unbound(message) if at < kept_from else message for at, message in tail)]


def _unbound(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    kept = [block for block in message.content if not (isinstance(block, dict) and block.get("type") in _REASONING)]
    return message.model_copy(update={"content": kept})


def _answered(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    group: list[BaseMessage] = []  #: a message and the results that follow it
    for message in messages:
        if not isinstance(message, ToolMessage):
            yield from _complete(group)
            group = []
        group.append(message)
    yield from _complete(group)


def _complete(group: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    first = group[0] if group else None
    called = calls_of(first).keys() if isinstance(first, AIMessage) else set()
    if first is None or not called:
        return [message for message in group if not isinstance(message, ToolMessage)]
    told = {one.tool_call_id: one for one in group if isinstance(one, ToolMessage) and one.tool_call_id in called}
    return [first, *told.values()] if told.keys() == called else []


def _portable(message: BaseMessage, payloads: Mapping[str, str]) -> BaseMessage:
    changed: dict[str, Any] = {}
    if isinstance(message, ToolMessage) and message.artifact is not None:
        changed["artifact"] = None
    if _PARENTS_OWN & message.additional_kwargs.keys():
        changed["additional_kwargs"] = {
            name: value for name, value in message.additional_kwargs.items() if name not in _PARENTS_OWN
        }
    if not isinstance(message.content, str):
        changed["content"] = [_whole(block, payloads) for block in message.content]
    return message.model_copy(update=changed) if changed else message


def _marked(message: BaseMessage) -> BaseMessage:
    if isinstance(message.content, str) or not any(_is_name(block) for block in message.content):
        return message
    marks = (
        {"type": "text", "text": f"({block['type']} omitted)"} if _is_name(block) else block
        for block in message.content
    )
    return message.model_copy(update={"content": list(marks)})


def _is_name(block: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(block, dict) and PAYLOAD_NAME in block


def _whole(block: Any, payloads: Mapping[str, str]) -> Any:
    """A block with its media in it again, where this run has it at hand; a child with the same files reads the rest."""
    if not _is_name(block) or (payload := payloads.get(block[PAYLOAD_NAME])) is None:
        return block
    return {name: value for name, value in block.items() if name != PAYLOAD_NAME} | {"base64": payload}
