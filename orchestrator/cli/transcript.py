"""A conversation for people: whole in a pipe; on a terminal long messages are folded, and say so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .console import console, on_terminal, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

FOLD = 20  #: lines of a message that a terminal shows

STYLES = {"human": "bold cyan", "ai": "bold green", "tool": "bold yellow", "system": "bold magenta"}


def print_transcript(messages: Sequence[BaseMessage]) -> None:
    """Print the messages, oldest first."""
    if not messages:
        print("\n(no messages)")
    for message in messages:
        print()
        if on_terminal():
            _print_folded(message)
        else:
            print(_head(message))
            print(_body(message))


def _print_folded(message: BaseMessage) -> None:
    from rich.text import Text

    screen = console()
    screen.print(Text(visible(_head(message)), STYLES.get(message.type, "bold")))
    lines = visible(_body(message)).split("\n")
    screen.print(Text("\n".join(lines[:FOLD])))
    if len(lines) > FOLD:
        screen.print(Text(f"… {len(lines) - FOLD} more lines (in a pipe each message is whole)", "dim"))


def _head(message: BaseMessage) -> str:
    name = f" {message.name}" if message.name else ""
    return f"[{message.type}{name}]"


def _body(message: BaseMessage) -> str:
    content = message.content
    parts = [content] if isinstance(content, str) else [_block(block) for block in content]
    parts += [f"→ {call['name']} {_json(call['args'])}" for call in getattr(message, "tool_calls", ())]
    return "\n".join(part for part in parts if part)


def _block(block: Any) -> str:
    if isinstance(block, str):
        return block
    if block.get("type") == "text":
        return str(block.get("text", ""))
    if block.get("type") in {"tool_use", "tool_call"}:
        return ""  # shown as the message's tool calls
    return f"({block.get('type')})"


def _json(value: Any) -> str:
    from ...shared.text import plain

    return json.dumps(plain(value), ensure_ascii=False)
