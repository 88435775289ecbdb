"""Parents whose model is the test, and children that hold where the test says.

A test plays the model: each call tells it what the model reads and waits for what it shall say. So a test knows where a
parent stands, across crashes too. Whatever is read is held against what providers accept.
"""

import asyncio
import json
import os
from contextlib import asynccontextmanager

import redis.asyncio
from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.middleware.filesystem import FilesystemMiddleware
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import interrupt
from typing_extensions import TypedDict

from outrider import BackgroundSubagents, Outrider, connect
from outrider.shared.backend import OutriderBackend
from outrider.shared.context import running

SUBAGENTS = {"leaf": "finds one thing", "no-such": "is not in langgraph.json"}


def key(*parts):
    run = running.get()
    return ":".join((run.host.store.keys.namespace, "test", run.claim.task_id, *parts))


def client():
    """A connection of its own: a blocking read must not hold up what the worker asks Redis."""
    return redis.asyncio.Redis.from_url(os.environ["OUTRIDER_REDIS_URL"], single_connection_client=True)


async def ask(name, payload="x"):
    """Tell the test that the run is here, and return what it answers."""
    async with client() as own:
        await own.rpush(key("at", name), payload)
        while not (answer := await own.blpop(key("open", name), 1)):
            pass
    return answer[1].decode()


async def hold(name):
    """Stop at a gate, where the test asked for it."""
    async with client() as own:
        if not await own.sismember(key("hold"), name):
            return
    if await ask(name) == "fail":
        raise ValueError(f"told to fail when {name}")


def refuse(messages):
    """Raise where a provider would: every call is answered directly after it, and nothing else is an answer."""
    open_calls = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in open_calls:
                raise ValueError(f"refused: the result of {message.tool_call_id} has no open call")
            open_calls.remove(message.tool_call_id)
            continue
        if open_calls:
            raise ValueError(f"refused: {sorted(open_calls)} are not answered")
        if isinstance(message, AIMessage):
            open_calls = {call["id"] for call in message.tool_calls}
    if open_calls or not messages:
        raise ValueError(f"refused: {sorted(open_calls) or 'nothing'} at the end")


class Puppet(BaseChatModel):
    """Says what the test says: JSON of `content` and `tool_calls`."""

    @property
    def _llm_type(self):
        return "puppet"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools])

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return asyncio.run(self._agenerate(messages, stop, **kwargs))

    async def _agenerate(self, messages, stop=None, run_manager=None, *, tools=(), **kwargs):
        system = [message.content for message in messages if isinstance(message, SystemMessage)]
        read = [message for message in messages if not isinstance(message, SystemMessage)]
        refuse(read)
        seen = {"prefix": [system, list(tools)], "messages": [message.model_dump(mode="json") for message in read]}
        said = json.loads(await ask("model", json.dumps(seen)))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(**said))])


class Swift(BaseChatModel):
    """Starts five children in its first turn, and has nothing to say to what comes."""

    @property
    def _llm_type(self):
        return "swift"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        refuse([message for message in messages if not isinstance(message, SystemMessage)])
        calls = [
            {"name": "start_async_task", "args": {"description": "now", "subagent_type": "leaf"}, "id": f"call-{at}"}
            for at in range(5)
        ]
        first = not any(isinstance(message, AIMessage) for message in messages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok", tool_calls=calls if first else []))])


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    await hold(f"look {where}")
    return f"seen {where}"


@tool
async def boom() -> str:
    """End the run in an error, when the test says so."""
    await ask("boom")
    raise ValueError("told to fail")


@tool
async def facts(runtime: ToolRuntime) -> str:
    """Tell what the run was given."""
    return json.dumps({"context": runtime.context, "mark": runtime.config["configurable"].get("mark")})


@tool
async def person() -> str:
    """Ask a person."""
    return interrupt("go on?")


TOOLS = [look, boom, facts, person]


class Context(TypedDict, total=False):
    user: str


class Slow(BackgroundSubagents):
    """Stops, where the test says so, when something was done and nothing of it is saved yet."""

    async def awrap_tool_call(self, request, handler):
        result = await handler(request)
        await hold("called")
        return result

    async def abefore_model(self, state, runtime):
        update = await super().abefore_model(state, runtime)
        if update:
            await hold("taken")
        return update


class Compact(AgentMiddleware):
    """Replaces the conversation by a summary at each model call, when the test says so."""

    async def abefore_model(self, state, runtime):
        async with client() as own:
            if not await own.sismember(key("hold"), "compact"):
                return None
        summary = HumanMessage(f"(a summary of {len(state['messages'])} messages)")
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), summary]}


_agent = create_agent(
    Puppet(), tools=TOOLS, system_prompt="You lead.", middleware=[Slow(SUBAGENTS), Compact()], context_schema=Context
)
deep = create_deep_agent(
    Puppet(), tools=TOOLS, system_prompt="You lead.", middleware=[Compact(), Slow(SUBAGENTS)], context_schema=Context
)
FORKS = {
    "forker": {"description": "yourself, with this conversation", "mode": "fork"},
    "leaf": {"description": "finds one thing", "notify_parent": False},
}
forker = create_agent(Puppet(), tools=TOOLS, system_prompt="You lead.", middleware=[BackgroundSubagents(FORKS)])
_backend = StateBackend()
summed = create_deep_agent(
    Puppet(),
    tools=TOOLS,
    backend=_backend,
    middleware=[
        SummarizationMiddleware(
            model=Puppet(),
            backend=_backend,
            trigger=("messages", 8),
            keep=("messages", 2),
            summarizer=lambda messages: f"(a summary of {len(messages)} messages)",
        ),
        BackgroundSubagents({"summed": {"description": "yourself", "mode": "fork"}}),
    ],
)
keeper = create_deep_agent(Puppet(), backend=OutriderBackend())
_AWAY = FilesystemMiddleware(backend=OutriderBackend(), offload_binary_content=True)
album = create_deep_agent(Puppet(), backend=OutriderBackend(), middleware=[_AWAY])
bare = create_agent(Puppet(), tools=TOOLS)
LATER = {"description": "finds one thing", "update_strategy": "enqueue"}
patient = create_agent(Puppet(), middleware=[Slow({"leaf": LATER, "bare": LATER})])
TOLD = {"description": "finds one thing", "webhook": os.environ.get("TEST_WEBHOOK")}
teller = create_agent(Puppet(), middleware=[BackgroundSubagents({"leaf": TOLD})])
swift = create_agent(Swift(), middleware=[BackgroundSubagents(SUBAGENTS)])
swift_deep = create_deep_agent(Swift(), middleware=[BackgroundSubagents(SUBAGENTS)])


_keeps = create_agent(Puppet(), tools=TOOLS, checkpointer=True)
keeps = StateGraph(MessagesState).add_node("inner", _keeps).add_edge(START, "inner").compile()
nested = StateGraph(MessagesState).add_node("agent", _agent).add_edge(START, "agent").compile()


@asynccontextmanager
async def agent():
    """The agent, behind a gate that stands before the run's input is saved."""
    await hold("opened")
    yield _agent


async def _work(state):
    """Submit what the test says, then answer with the ids of what the state was told."""
    orders = json.loads(await ask("work"))
    async with Outrider() as o:
        ids = [(await o.submit("leaf", text)).task_id for text in orders.get("submit", ())]
        ids += [(await o.submit("leaf", text, parent=False)).task_id for text in orders.get("apart", ())]
    await hold("worked")
    return {"messages": [AIMessage(json.dumps(ids))]}


graph = StateGraph(MessagesState).add_node("work", _work).add_edge(START, "work").compile()


async def _work_swiftly(state):
    task_id = running.get().claim.task_id
    if len(state["messages"]) == 1:
        async with Outrider() as o:
            await asyncio.gather(*(o.submit("leaf", "now", idempotency_key=f"{task_id}-{at}") for at in range(5)))
    return {"messages": [AIMessage("ok")]}


swift_graph = StateGraph(MessagesState).add_node("work", _work_swiftly).add_edge(START, "work").compile()


def _work_in_a_thread(state):
    """Submit from a node that is plain sync code, which LangGraph runs in a thread; a wake has nothing to submit."""
    if len(state["messages"]) > 1:
        return {"messages": [AIMessage("told")]}
    with connect() as o:
        o.submit("leaf", "in the background")
    return {"messages": [AIMessage("submitted")]}


sync_graph = StateGraph(MessagesState).add_node("work", _work_in_a_thread).add_edge(START, "work").compile()


async def _submit_for_ever(state):
    async with Outrider() as o:
        while True:
            submitted = await o.submit("leaf", "wait")
            async with client() as own:
                await own.rpush(key("at", "submitted"), submitted.task_id)


swarm = StateGraph(MessagesState).add_node("submit", _submit_for_ever).add_edge(START, "submit").compile()


async def _rebel(state):
    async with Outrider() as o:
        await o.cancel(running.get().task.parent_id)
    return {"messages": [AIMessage("outlived its parent")]}


rebel = StateGraph(MessagesState).add_node("rebel", _rebel).add_edge(START, "rebel").compile()


async def _quit(state):
    async with Outrider() as o:
        for _ in range(5):
            await o.submit("leaf", "wait")
        await ask("quit")
        await o.cancel(running.get().task.task_id)
    return {"messages": [AIMessage("outlived itself")]}


quitter = StateGraph(MessagesState).add_node("quit", _quit).add_edge(START, "quit").compile()


_swift_inside = create_agent(Swift(), middleware=[BackgroundSubagents(SUBAGENTS)])


def _lead_in_a_thread(state):
    """Call an agent from plain sync code, so that its tools and its middleware are called so too."""
    return _swift_inside.invoke({"messages": state["messages"]})


sync_agent = StateGraph(MessagesState).add_node("lead", _lead_in_a_thread).add_edge(START, "lead").compile()


_inside_a_thread = create_agent(Puppet(), middleware=[BackgroundSubagents(SUBAGENTS)])


def _work_with_tools_in_a_thread(state):
    return _inside_a_thread.invoke({"messages": state["messages"]})


threaded = StateGraph(MessagesState).add_node("lead", _work_with_tools_in_a_thread).add_edge(START, "lead").compile()


class Wordless(TypedDict):
    text: str


async def _submit_one(state):
    async with Outrider() as o:
        await o.submit("leaf", "now")
    return {}


wordless = StateGraph(Wordless).add_node("submit", _submit_one).add_edge(START, "submit").compile()


async def _leaf(state):
    """End at once, unless the text says `wait`; fail where it says `fail`."""
    text = state["messages"][0].text
    if text.startswith("wait"):
        await ask("leaf")
    if "fail" in text:
        raise ValueError("secret of a leaf")
    if "big" in text:
        text = "&" * 5_000_000
    return {"messages": [AIMessage(f"leaf: {text}")]}


leaf = StateGraph(MessagesState).add_node("leaf", _leaf).add_edge(START, "leaf").compile()
