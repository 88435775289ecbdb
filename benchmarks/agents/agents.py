"""The agents that are measured. None calls a model."""

from __future__ import annotations

import asyncio
import base64
import operator
import random
import time
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

STEP_BYTES = 1024  #: what each step adds to the conversation
COMPUTE_SECONDS = 0.05  #: of a core, that an agent which computes takes


class Counted(TypedDict):
    """State of the agents without a conversation."""

    text: str
    steps: Annotated[int, operator.add]


async def _count(_state: Counted) -> dict[str, Any]:
    return {"steps": 1}


async def _sleep(_state: Counted) -> dict[str, Any]:
    await asyncio.sleep(1)
    return {"steps": 1}


async def _compute(_state: Counted) -> dict[str, Any]:
    until = time.thread_time() + COMPUTE_SECONDS
    while time.thread_time() < until:
        pass
    return {"steps": 1}


def _one_node(node: Any) -> Any:
    return StateGraph(Counted).add_node("node", node).add_edge(START, "node").compile()


trivial = _one_node(_count)
sleeper = _one_node(_sleep)
computer = _one_node(_compute)


class Talk(MessagesState):
    """A conversation that is there at once, and then grows by small steps."""

    messages_before: int
    message_bytes: int
    steps: int
    done: Annotated[int, operator.add]


def _text(seed: str, size: int) -> str:
    # Random, so that compression has nothing to gain that it would not have on an agent's own text.
    return base64.b64encode(random.Random(seed).randbytes(size * 3 // 4)).decode().ljust(size, "=")  # noqa: S311 it protects nothing


async def _converse(state: Talk) -> dict[str, Any]:
    size = state["message_bytes"]
    return {"messages": [AIMessage(_text(f"before {number}", size)) for number in range(state["messages_before"])]}


async def _say(state: Talk) -> dict[str, Any]:
    return {"messages": [AIMessage(_text(f"step {state.get('done', 0)}", STEP_BYTES))], "done": 1}


def _goes_on(state: Talk) -> str:
    return "say" if state.get("done", 0) < state["steps"] else END


talker = (
    StateGraph(Talk)
    .add_node("converse", _converse)
    .add_node("say", _say)
    .add_edge(START, "converse")
    .add_conditional_edges("converse", _goes_on, ["say", END])
    .add_conditional_edges("say", _goes_on, ["say", END])
    .compile()
    .with_config(recursion_limit=1000)
)
