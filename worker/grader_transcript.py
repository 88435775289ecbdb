"""A conversation as bounded text, for a grader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from ..shared.rubric import PER_MESSAGE
from ..shared.text import clean, one_line, render_json

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST_MESSAGES = 30
CUT = "...(truncated)"
EMPTY = "(no messages)"


def transcript(messages: Sequence[Any], asked_id: str | None = None, asked: str = "", *, forked: bool = False) -> str:
    """The request and the last messages, each with who said it.

    `asked_id` is the id of the message that the task began with, and `asked` its text, should it be gone (agents
    summarise), or stand elsewhere. Where neither is known, the request is the first message that a person wrote; not so
    in a fork, which begins with the parent's.
    """
    said = [message for message in messages if isinstance(message, BaseMessage)]
    last = said[-LAST_MESSAGES:]
    request = _request(said, asked_id, asked, forked=forked)
    if request is not None and request not in last:
        last.insert(0, request)
    return "\n\n".join(_shown(message) for message in last) or EMPTY


def cut(text: str) -> str:
    """The text where it is short enough for a grader, else its beginning and a mark."""
    return clean(text[:PER_MESSAGE]) + (CUT if len(text) > PER_MESSAGE else "")


def _request(messages: Sequence[BaseMessage], asked_id: str | None, asked: str, *, forked: bool) -> BaseMessage | None:
    humans = [message for message in messages if isinstance(message, HumanMessage)]
    named = next((message for message in humans if asked_id and message.id == asked_id), None)
    if named is None and asked:
        return HumanMessage(asked)
    if named is not None or forked:
        return named
    # Feedback, notifications, pinned skills and summaries are all marked: no person wrote them.
    return next((message for message in humans if not message.additional_kwargs.get("lc_source")), None)


def _shown(message: BaseMessage) -> str:
    """Lines after the first are set in: none of them looks like the next message."""
    text = cut(_text(message) or "(empty)").replace("\n", "\n  ")
    return f"[{_speaker(message)}] {text}"


def _speaker(message: BaseMessage) -> str:
    if isinstance(message, HumanMessage):
        source = message.additional_kwargs.get("lc_source")
        return f"not a person: {one_line(str(source), 40)}" if source else "user"
    if isinstance(message, AIMessage):
        return "assistant"
    if isinstance(message, ToolMessage):
        return f"tool {one_line(message.name or '', 80)}".rstrip()
    return message.type


def _text(message: BaseMessage) -> str:
    try:
        blocks: list[Any] = list(message.content_blocks)
    except Exception:  # noqa: BLE001 LangChain translates a provider's blocks, and not of every form
        return f"(blocks of another form) {message.text}".rstrip()
    return "\n".join(part for block in blocks if (part := _block(block)))


def _block(block: Any) -> str:
    match block:
        case {"type": "text", "text": text}:
            return str(text)
        case {"type": "tool_call", "name": name, "args": args}:
            return f"(calls {name} with {render_json(args)})"
        case {"type": kind}:
            return f"({kind})"
    return "(block)"
