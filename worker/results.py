"""The result of a task: what its agent has to say at the end, as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

from ..shared.text import clean, clip, plain

#: Content blocks that are part of an answer. Reasoning and tool calls are not.
SHOWN_BLOCKS = frozenset({"text", "image", "audio", "video", "file", "text-plain"})


def result_of(values: Any, output_keys: str | list[str] | tuple[str, ...], limit: int) -> str:
    """JSON text of the result, at most `limit` bytes.

    That is `structured_response` where there is one, else the last assistant message that is not empty (text, or
    content blocks where there is media), else, without `messages`, the output state. What is too long is cut to a
    text that says so; the state keeps it whole.
    """
    return _bounded(plain(_chosen(values, output_keys)), limit)


def _chosen(values: Any, output_keys: str | list[str] | tuple[str, ...]) -> Any:
    if not isinstance(values, Mapping):
        return values
    if values.get("structured_response") is not None:
        return values["structured_response"]
    messages = values.get("messages")
    if isinstance(messages, list):
        return _last_answer(messages)
    keys = values if isinstance(output_keys, str) else output_keys
    return {key: values[key] for key in keys if key in values}


def _last_answer(messages: list[Any]) -> Any:
    for message in reversed(messages):
        if isinstance(message, AIMessage) and (answer := _answer(message)):
            return answer
    return None


def _answer(message: AIMessage) -> str | list[Any]:
    if isinstance(message.content, str):
        return message.content if message.content.strip() else ""
    blocks: list[Any] = [block for block in message.content_blocks if block.get("type") in SHOWN_BLOCKS]
    if all(block["type"] == "text" for block in blocks):
        return "".join(block["text"] for block in blocks).strip()
    return blocks


def _bounded(value: Any, limit: int) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(text) * 4 <= limit or len(text.encode()) <= limit:
        return text
    whole = value if isinstance(value, str) else text
    # Escapes and multi-byte characters make the JSON longer than the text: shrink until it fits.
    length = limit
    while len((cut := json.dumps(clip(clean(whole), length), ensure_ascii=False)).encode()) > limit:
        length = length * 3 // 4
    return cut
