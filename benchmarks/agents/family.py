"""A parent and its children for `wake.py`, in one worker process. No provider is called: the model is a few lines."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from outrider import BackgroundSubagents
from outrider.shared.context import running

SUBAGENTS = {"brief": "ends after a moment", "crowd": "ends when all do"}
MOMENT_SECONDS = 0.1  #: that a brief child lives: its parent is at rest by then
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
    """Leads so many children as the first message says, one after the other or all at once."""

    kind: Literal["relay", "lead"]

    @property
    def _llm_type(self) -> str:
        return "lead"

    def bind_tools(self, tools: Any, **_: Any) -> Any:  # noqa: ARG002 it knows its tools
        """Return itself."""
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:  # noqa: ARG002 LangChain's signature
        message = (self._relay if self.kind == "relay" else self._lead)(messages)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _relay(self, messages: list[BaseMessage]) -> AIMessage:
        """One child after the other: start one, rest, and start the next when woken."""
        told = _told(messages)
        if isinstance(messages[-1], ToolMessage) or told >= _number(messages):
            return AIMessage("that is all for now")
        return _calls(("start_async_task", {"description": "go", "subagent_type": "brief"}), first=told)

    def _lead(self, messages: list[BaseMessage]) -> AIMessage:
        """Start all children in one turn, and work until half of them were told of: then rest."""
        count, turns = _number(messages), sum(isinstance(message, AIMessage) for message in messages)
        if turns == 0:
            crowd = {"description": str(count), "subagent_type": "crowd"}
            return _calls(*[("start_async_task", crowd)] * count)
        if _told(messages) < count // 2:
            return _calls(("work", {}), first=count + turns)
        return AIMessage("that is all for now")


def _number(messages: list[BaseMessage]) -> int:
    return int(next(message.text for message in messages if isinstance(message, HumanMessage)))


def _told(messages: list[BaseMessage]) -> int:
    """How many children were told of: all of a person that the conversation has is its first message."""
    return sum(isinstance(message, HumanMessage) for message in messages) - 1


def _calls(*calls: tuple[str, dict[str, Any]], first: int = 0) -> AIMessage:
    made = [{"name": name, "args": args, "id": f"call-{first + at}"} for at, (name, args) in enumerate(calls)]
    return AIMessage("", tool_calls=made)


def _parent(kind: Literal["relay", "lead"]) -> Any:
    return create_agent(Lead(kind=kind), tools=[work], middleware=[BackgroundSubagents(SUBAGENTS)])


relay, lead = _parent("relay"), _parent("lead")
