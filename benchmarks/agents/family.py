"""A parent and its children for `wake.py`, in one worker process. No provider is called: the model is a few lines."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from outrider import BackgroundSubagents
from outrider.shared.context import running

SUBAGENTS = {"brief": "ends after a moment", "crowd": "ends when all do"}
MOMENT_SECONDS = 0.1  #: that a brief child lives, and the last of many: a parent that rests is at rest by then
TURN_SECONDS = 0.1  #: that a turn of a working parent takes

_here: Counter[str] = Counter()  # children of a parent that wait for the others
_together: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


def _parent_id() -> str:
    run = running.get()
    return "" if run is None else run.task.parent_id or ""


async def _brief(_state: MessagesState) -> dict[str, Any]:
    await asyncio.sleep(MOMENT_SECONDS)
    return {"messages": [AIMessage("found it")]}


async def _crowd(state: MessagesState) -> dict[str, Any]:
    parent_id = _parent_id()
    _here[parent_id] += 1
    if _here[parent_id] == _number(state["messages"]):
        await asyncio.sleep(MOMENT_SECONDS)
        _together[parent_id].set()
    await _together[parent_id].wait()
    return {"messages": [AIMessage("found it")]}


def _one_node(node: Any) -> Any:
    return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()


brief, crowd = _one_node(_brief), _one_node(_crowd)


@tool
async def work() -> str:
    """Do something that takes a while."""
    await asyncio.sleep(TURN_SECONDS)
    return "worked"


class Lead(BaseChatModel):
    """Leads so many children as the first message says."""

    @property
    def _llm_type(self) -> str:
        return "lead"

    def bind_tools(self, tools: Any, **_: Any) -> Any:  # noqa: ARG002 it knows its tools
        """Return itself."""
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:  # noqa: ARG002 LangChain's signature
        turns = sum(isinstance(message, AIMessage) for message in messages)
        # All of a person that the conversation has is its first message.
        told = sum(isinstance(message, HumanMessage) for message in messages) - 1
        return ChatResult(generations=[ChatGeneration(message=self._next(messages, turns, told))])

    def _next(self, messages: list[BaseMessage], turns: int, told: int) -> AIMessage:
        """Start one child, rest, and start the next when woken."""
        if isinstance(messages[-1], ToolMessage) or told >= _number(messages):
            return AIMessage("that is all for now")
        return _calls(turns, "start_async_task", description="go", subagent_type="brief")


class Leaves(Lead):
    """Starts all children in one turn, and rests."""

    def _next(self, messages: list[BaseMessage], turns: int, told: int) -> AIMessage:  # noqa: ARG002 others look at it
        if turns:
            return AIMessage("that is all for now")
        count = _number(messages)
        return _calls(turns, "start_async_task", count, description=str(count), subagent_type="crowd")


class Works(Leaves):
    """Starts all children in one turn, works until it was told of half of them, and rests."""

    def _next(self, messages: list[BaseMessage], turns: int, told: int) -> AIMessage:
        if turns and told < _number(messages) // 2:
            return _calls(turns, "work")
        return super()._next(messages, turns, told)


def _number(messages: list[BaseMessage]) -> int:
    return int(next(message.text for message in messages if isinstance(message, HumanMessage)))


def _calls(turn: int, name: str, count: int = 1, **args: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{turn}-{at}"} for at in range(count)])


def _parent(model: Lead) -> Any:
    return create_agent(model, tools=[work], middleware=[BackgroundSubagents(SUBAGENTS)])


relay, leaves, works = _parent(Lead()), _parent(Leaves()), _parent(Works())
