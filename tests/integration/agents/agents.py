"""Agents that do what a test tells them. They hold at gates in Redis, and note what they did there."""

import asyncio
import contextlib
import operator
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, TypedDict

import httpx
import redis.asyncio
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff

from outrider import Outrider, OutriderError, progress
from outrider.shared.context import running

PATIENCE = Retry(ConstantBackoff(0.05), -1)


def key(*parts):
    run = running.get()
    return ":".join((run.host.store.keys.namespace, "test", run.claim.task_id, *parts))


async def note(what):
    await running.get().host.store.redis.rpush(key("did"), what)


async def count(what):
    """How often this was noted."""
    return (await running.get().host.store.redis.lrange(key("did"), 0, -1)).count(what.encode())


async def gate(name):
    """Say that the run is here, and wait until the test opens."""
    async with redis.asyncio.Redis.from_url(os.environ["OUTRIDER_REDIS_URL"], retry=PATIENCE) as client:
        await client.rpush(key("at", name), "x")
        while not await client.blpop(key("open", name), 1):
            pass


def sync_gate(name):
    with redis.Redis.from_url(os.environ["OUTRIDER_REDIS_URL"]) as client:
        client.rpush(key("at", name), "x")
        while not client.blpop(key("open", name), 1):
            pass


class State(TypedDict):
    text: str
    gates: list[str]
    done: Annotated[list[str], operator.add]


def _chain(*nodes, schema=State):
    graph, last = StateGraph(schema), START
    for name, node in nodes:
        graph.add_node(name, node)
        graph.add_edge(last, name)
        last = name
    return graph


def _step(name):
    async def step(state):
        await note(name)
        if name in state.get("gates", ()):
            await gate(name)
        return {"done": [name]}

    return step


STEPS = _chain(*((name, _step(name)) for name in "abc"))

compiled = STEPS.compile()
builder = STEPS


def factory():
    return STEPS.compile()


def factory_with_config(config):
    text = config["configurable"]["greeting"]

    async def greet(state):
        return {"done": [text]}

    return _chain(("greet", greet)).compile()


async def async_factory(*, config):
    return factory_with_config(config)


@asynccontextmanager
async def context_factory():
    await note("opened")
    try:
        yield STEPS
    finally:
        await note("closed")


async def wrong_factory():
    return {"not": "a graph"}


retried = compiled.with_retry()


def _raise(name):
    if name == "exit":
        sys.exit(3)
    if name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "unprintable":

        class Unprintable(Exception):
            def __str__(self):
                raise RuntimeError

        raise Unprintable
    if name == "unreadable":

        class Unreadable(TimeoutError):
            __module__ = "openai"

            @property
            def response(self):
                raise RuntimeError

        raise Unreadable
    if name == "drained":
        raise GraphDrained
    errors = {"timeout": TimeoutError, "cancelled": asyncio.CancelledError, "value": ValueError}
    raise errors[name](f"sk-SECRET {name} \ud835 \x00 " + "x" * 500_000)


async def _raises(state):
    return _raise(state["text"])


raises = _chain(("raises", _raises)).compile()
sync_raises = _chain(("raises", lambda state: _raise(state["text"]))).compile()


def _side(name):
    async def side(state):
        await note(name)
        return {"text": name} if state["text"] == "both write" else {"done": [name]}

    return side


_sides = StateGraph(State)
for _name in ("left", "right"):
    _sides.add_node(_name, _side(_name))
    _sides.add_edge(START, _name)
torn = _sides.compile()

_loops = StateGraph(State)
_loops.add_node("again", _step("again"))
_loops.add_edge(START, "again")
_loops.add_edge("again", "again")
looper = _loops.compile().with_config({"recursion_limit": 4})

ODD = {
    "bytes": b"\xff\x00",
    "set": {"b", "a"},
    "nan": float("nan"),
    "surrogate": "\ud835 and \x00",
    "object": object(),
    "class": State,
    "big": "y" * 5_000_000,
    "cycle": [],
}
ODD["cycle"].append(ODD["cycle"])


class OddState(TypedDict):
    text: str
    value: Annotated[object, lambda _, new: new]


async def _odd(state):
    return {"value": ODD[state["text"]]}


# The odd value is not checkpointed: what a serializer refuses is another test's matter.
@entrypoint()
async def odd(given):
    return entrypoint.final(value=ODD[given["text"]], save=None)


def _slow_sync(state):
    sync_gate("sync")
    return {"done": ["late"]}


slow_sync = _chain(("slow", _slow_sync), ("after", _step("after"))).compile()


async def _stubborn(state):
    try:
        await gate("stubborn")
    except asyncio.CancelledError:
        with contextlib.suppress(asyncio.CancelledError):
            await gate("still")
    return {"done": ["late"]}


stubborn = _chain(("stubborn", _stubborn), ("after", _step("after"))).compile()


async def _asks(state):
    answer = interrupt({"question": "go on?"})
    return {"done": [answer]}


asks = _chain(("asks", _asks)).compile()


async def _tells(state):
    get_stream_writer()({"seen": 3})
    progress(0.5, note="half")
    await asyncio.to_thread(progress, 3, 4)
    return {"done": ["told"]}


tells = _chain(("tells", _tells)).compile()


async def _counts(state):
    progress(Decimal(3), Fraction(10))
    running.get().emit("custom", {"data": {Decimal(1): float("nan"), "who": object(), "half": "\ud835"}})
    with contextlib.suppress(ValueError):
        progress(float("nan"))
    return {"done": ["counted"]}


counts = _chain(("counts", _counts)).compile()

_inner = _chain(("inner", _step("inner"))).compile(checkpointer=False)
no_checkpoints_inside = _chain(("nested", _inner), ("after", _step("after"))).compile()


class ScriptedModel(BaseChatModel):
    """Calls the tool `look` in each of its first `calls` turns, then answers. Each turn costs 10 tokens."""

    calls: int = 0
    hold: bool = False

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _message(self, messages, cls=AIMessage):
        turn = sum(isinstance(message, AIMessage) for message in messages)
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        if turn < self.calls:
            call = {"name": "look", "args": {"where": f"{turn}"}, "id": f"call-{turn}"}
            return AIMessage("", tool_calls=[call], usage_metadata=usage)
        return cls("the final answer", usage_metadata=usage)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=self._message(messages))])

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        if self.hold:
            await gate("model")
        whole = self._message(messages)
        if whole.tool_calls:
            chunks = [
                {"name": c["name"], "args": '{"where": "here"}', "id": c["id"], "index": 0} for c in whole.tool_calls
            ]
            pieces = [AIMessageChunk("", tool_call_chunks=chunks, usage_metadata=whole.usage_metadata)]
        else:
            pieces = [AIMessageChunk(word) for word in ("the ", "final ", "answer")]
            pieces.append(AIMessageChunk("", usage_metadata=whole.usage_metadata))
        for piece in pieces:
            chunk = ChatGenerationChunk(message=piece)
            if run_manager:
                await run_manager.on_llm_new_token(piece.text, chunk=chunk)
            yield chunk


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    await note("look")
    return f"seen {where}"


chat = create_agent(ScriptedModel(calls=1), tools=[look])
talker = create_agent(ScriptedModel(calls=100), tools=[look])
deep = create_deep_agent(model=ScriptedModel(calls=3), tools=[look])
held_chat = create_agent(ScriptedModel(hold=True), tools=[])


async def _swallows(state):
    model = ScriptedModel()
    for _ in range(20):
        with contextlib.suppress(Exception):
            await model.ainvoke("again")
    return {"done": ["swallowed"]}


swallower = _chain(("swallows", _swallows)).compile()


@tool
async def dig(where: str) -> str:
    """Look somewhere for long."""
    try:
        await gate("dig")
    except asyncio.CancelledError:
        await note("cut")
        raise
    return f"found {where}"


async def _digs(state):
    return {"done": [await dig.ainvoke({"where": "here"})]}


async def _talks(state):
    await ScriptedModel().ainvoke("first")
    await gate("talk")
    return {"done": [(await ScriptedModel().ainvoke("second")).text]}


_beside = StateGraph(State)
for _node in (_digs, _talks):
    _beside.add_node(_node)
    _beside.add_edge(START, _node.__name__)
beside = _beside.compile()


class Busy(Exception):
    """One that its agent names."""


class VeryBusy(Busy):
    pass


TROUBLE = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "busy": lambda: VeryBusy("come again"),
    "away": lambda: httpx.ConnectError("no route"),
    "wordy": lambda: VeryBusy("&" * 500_000),
    "own": lambda: TimeoutError("its own"),
    "endless": lambda: GraphRecursionError("too many steps"),
    "long": lambda: httpx.ReadError("prompt is too long"),
}


def _flaky_step(name):
    """A step in trouble: `a=busy,kill` says what becomes of its first tries."""

    async def step(state):
        await note(name)
        if name in state.get("gates", ()):
            await gate(name)
        done = [entry.decode() for entry in await running.get().host.store.redis.lrange(key("did"), 0, -1)]
        plan = dict(part.split("=") for part in state["text"].split() if "=" in part).get(name, "")
        for trouble in plan.split(",")[done.count(name) - 1 : done.count(name)]:
            if trouble:
                error = TROUBLE[trouble]()
                raise error
        return {"done": [name]}

    return step


FLAKY = _chain(*((name, _flaky_step(name)) for name in "abc"))
flaky = FLAKY.compile()
flaky_inside = _chain(("inside", FLAKY.compile())).compile()


async def _calls(state):
    """One that calls a graph of its own, as tools that are agents do."""
    return {"done": (await flaky.ainvoke({"text": state["text"]}))["done"]}


flaky_called = _chain(("calls", _calls)).compile()


class BusyModel(ScriptedModel):
    """Calls its tool once; that a subagent of its does never answers."""

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        if any("subtask" in str(message.content) for message in messages if message.type == "human"):
            await note("subagent")
            raise httpx.ConnectError("no route")
        call = {"name": "task", "args": '{"description": "subtask", "subagent_type": "general-purpose"}', "index": 0}
        chunk = AIMessageChunk("", tool_call_chunks=[{**call, "id": "call-1"}])
        yield ChatGenerationChunk(message=chunk)


flaky_deep = create_deep_agent(model=BusyModel())


async def _sleeps(state):
    await note("started")
    await asyncio.Event().wait()


sleeper = _chain(("sleeps", _sleeps)).compile()


async def _tells_who_is_there(state):
    """Note in one log, for all workers, who is at work."""
    run = running.get()
    log, who = f"{run.host.store.keys.namespace}:test:log", f"{os.getpid()} {run.claim.task_id}"
    await run.host.store.redis.rpush(log, f"enters {who}")
    await run.host.store.redis.rpush(f"{log}:entered", who)
    await gate("bounded")
    await run.host.store.redis.rpush(log, f"leaves {who}")
    return {"done": ["bounded"]}


bounded = _chain(("bounded", _tells_who_is_there)).compile()


async def _submit_late():
    running.get().emit("custom", {"data": "late"})
    try:
        async with Outrider() as o:
            await o.submit("chat", "late", notify_parent=False)
    except OutriderError as error:
        await note(type(error).__name__)


async def _dies_hard(state):
    """In its first attempt: hold, and do then all that it can, however often it is told to stop."""
    if running.get().run.attempt > 0:
        await gate("second")
        return {"done": ["second"]}
    with contextlib.suppress(asyncio.CancelledError):
        await gate("first")
    late = asyncio.create_task(_submit_late())
    while not late.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([late])
    return {"done": ["late"]}


diehard = _chain(("dies", _dies_hard), ("after", _step("after"))).compile()


async def _blocks(state):
    with redis.Redis.from_url(os.environ["OUTRIDER_REDIS_URL"]) as client:  # the loop gets no turn from here on
        client.rpush(key("did"), "blocks")
    time.sleep(float(state["text"]))  # noqa: ASYNC251 what agents should not do
    return {"done": ["slept"]}


blocks = _chain(("blocks", _blocks)).compile()


def _paced(name):
    async def step(state):
        await note(name)
        await asyncio.sleep(0.2)
        return {"done": [name]}

    return step


paced = _chain(*((name, _paced(name)) for name in "abcde")).compile()

CLIENTS = []


async def _cached_client(state):
    """Use a client that an earlier run of this process made: it works only while the loop is the same."""
    if not CLIENTS:
        CLIENTS.append(redis.asyncio.Redis.from_url(os.environ["OUTRIDER_REDIS_URL"]))
    await CLIENTS[0].ping()
    return {"done": [str(os.getpid())]}


caches = _chain(("caches", _cached_client)).compile()
