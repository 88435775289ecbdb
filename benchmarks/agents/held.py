"""An agent that is at work until it is stopped, and notes from when to when that was."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, TypedDict

from langgraph.config import get_config
from langgraph.graph import START, StateGraph


class Text(TypedDict):
    """The text names the file for the notes."""

    text: str


async def _hold(state: Text) -> dict[str, Any]:
    _note(state, "started")
    try:
        await asyncio.Event().wait()
    finally:
        _note(state, "stopped")
    return {}


def _note(state: Text, what: str) -> None:
    task_id = get_config()["configurable"]["thread_id"]
    with Path(state["text"]).open("a") as file:
        file.write(f"{what} {task_id} {time.monotonic()}\n")


held = StateGraph(Text).add_node("hold", _hold).add_edge(START, "hold").compile()
