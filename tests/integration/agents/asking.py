"""Agents that ask a person, in every place where a graph can."""

import operator
from typing import Annotated, Literal, TypedDict

from agents import count, gate, note
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.errors import GraphInterrupt
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Interrupt, Send, interrupt
from pydantic import BaseModel


class State(TypedDict):
    text: str
    gates: list[str]
    done: Annotated[list, operator.add]


async def _in_a_row(state):
    """Ask twice in one node; what comes before, between and after is noted each time it is done."""
    await note("begin")
    first = interrupt("first?")
    await note(f"first {first}")
    if "between" in state.get("gates", ()):
        await gate("between")
    second = interrupt("second?")
    await note(f"second {second}")
    return {"done": [first, second]}


def _graph(*nodes, **options):
    graph = StateGraph(State)
    for name, node in nodes:
        graph.add_node(name, node)
        graph.add_edge(START, name)
    return graph.compile(**options)


async def _stumbles(state):
    """Fail once, between two questions."""
    first = interrupt("first?")
    await note("stumble")
    if await count("stumble") == 1:
        raise ConnectionResetError("the model's provider hung up")
    return {"done": [first, interrupt("second?")]}


stumbles = _graph(("asks", _stumbles))
stumbles_below = _graph(("outer", stumbles))
in_a_row = _graph(("asks", _in_a_row))
below = _graph(("outer", in_a_row))


async def _calls(state):
    inner = {"in": in_a_row}["in"]  # LangGraph finds no subgraph by looking at the node's code
    return {"done": (await inner.ainvoke({"text": "", "gates": state.get("gates", []), "done": []}))["done"]}


called = _graph(("calls", _calls))


def _asker(name):
    async def ask(state):
        answer = interrupt({"from": name})
        await note(f"{name} {answer}")
        if name in state.get("gates", ()):
            await gate(name)
        return {"done": [f"{name} {answer}"]}

    return ask


async def _works(state):
    await note("worked")
    return {"done": ["worked"]}


at_once = _graph(("a", _asker("a")), ("b", _asker("b")), ("works", _works))


async def _one(state):
    return {"done": [[state["n"], interrupt(f"number {state['n']}?")]]}


_sends = StateGraph(State)
_sends.add_node("one", _one)
_sends.add_conditional_edges(START, lambda _: [Send("one", {"n": n}) for n in range(3)], ["one"])
sends = _sends.compile()


async def _again(state):
    return {"done": [interrupt(f"round {len(state.get('done', []))}?")]}


_rounds = StateGraph(State)
_rounds.add_node("again", _again)
_rounds.add_edge(START, "again")
_rounds.add_conditional_edges("again", lambda state: "again" if len(state["done"]) < 3 else END)
rounds = _rounds.compile()


@task
async def _part(name):
    return [name, interrupt(f"{name}?")]


@entrypoint()
async def functional(given):
    one, two = _part("one"), _part("two")
    return [await one, await two, interrupt("all?")]


stops = _graph(("works", _works), interrupt_before=["works"])


async def _makes_up(_state):
    raise GraphInterrupt([Interrupt("really?", id='of "my" own')])


made_up = _graph(("asks", _makes_up))


class Size(BaseModel):
    unit: Literal["cm", "in"]
    number: int


async def _schema(state):
    size = interrupt("how long?", response_schema=Size)
    return {"done": [size.number, size.unit]}


schema = _graph(("asks", _schema))


async def _catches(state):
    try:
        interrupt("?")
    except Exception as error:  # noqa: BLE001 as careless code does
        return {"done": [type(error).__name__]}


catches = _graph(("catches", _catches))


class Calls(BaseChatModel):
    """Calls these tools in its first turn, and then says what came of them."""

    names: list[str]

    @property
    def _llm_type(self):
        return "calls"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        if not any(isinstance(message, AIMessage) for message in messages):
            calls = [{"name": name, "args": {"what": f"{n}"}, "id": f"call-{n}"} for n, name in enumerate(self.names)]
            said = AIMessage("", tool_calls=calls)
        else:
            said = AIMessage(" | ".join(message.content for message in messages if message.type == "tool"))
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
async def look(what: str) -> str:
    """Look at something."""
    await note(f"look {what}")
    return f"seen {what}"


@tool
async def person(what: str) -> str:
    """Ask a person."""
    await note(f"person {what}")
    return f"told {interrupt(f'what about {what}?')}"


REVIEWED = {"interrupt_on": {"look": True}}
tools = create_agent(Calls(names=["look", "person", "look"]), tools=[look, person])
reviewed = create_agent(Calls(names=["look", "look"]), tools=[look], middleware=[HumanInTheLoopMiddleware(**REVIEWED)])
reviewed_each = create_agent(
    Calls(names=["look", "look"]),
    tools=[look],
    middleware=[HumanInTheLoopMiddleware(**REVIEWED, interrupt_mode="per_call")],
)
reviewed_deep = create_deep_agent(model=Calls(names=["look"]), tools=[look], **REVIEWED)
