"""Agents that work in a storm. Each writes down what it does outside, as an agent with side effects would.

What they do is decided by their task's id and by what they did, never by chance: each attempt of a step does the same.
"""

import asyncio
import json
import os
import re
import time
import zlib
from pathlib import Path

import provider
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.config import get_config
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from outrider import BackgroundSubagents
from outrider.shared.context import running

PASSING = 5  #: of 100 steps end so, unless their run was attempted before
TASK_ID = re.compile(r"Started task (\S+)")
SUBAGENTS = {
    "steps": "works in steps",
    "talker": "calls a tool",
    "asker": "asks a person",
    "graded": "is graded",
    "lead": "leads others",
    "fork": {"description": "reads on", "mode": "fork"},
}


def log(what, **facts):
    """Append a line to this process' side-effect log, whole or not at all: a worker may be killed at any moment."""
    claim = running.get().claim
    line = {
        "who": "agent",
        "what": what,
        "at": time.monotonic(),
        "pid": os.getpid(),
        "task": claim.task_id,
        "run": claim.run_id,
        "epoch": claim.epoch,
        **facts,
    }
    path = Path(os.environ["STORM_FOLDER"]) / f"agents-{os.getpid()}.jsonl"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def chance(*facts):
    """A number from 0 to 99 that is the same each time."""
    return zlib.crc32("/".join(map(str, (running.get().claim.task_id, *facts))).encode()) % 100


async def effect(name, seconds):
    """Do something outside, in a step that is known by its number."""
    step = get_config()["metadata"]["langgraph_step"]
    log("begin", step=step, name=name)
    await asyncio.sleep(seconds)
    log("end", step=step, name=name)


# --- graphs ----------------------------------------------------------------------------------------------------------


class Passing(Exception):
    """An error that is worth another attempt."""


class Steps(MessagesState):
    done: list[str]


def _orders(state):
    """What the last message that asks for anything asks for: how many steps, how long each, whether to fail."""
    asked = [message.text for message in state["messages"] if message.text.startswith("{")]
    return json.loads(asked[-1].rpartition("\n\n")[2])  # what an earlier run did not save stands before it


async def _step(state):
    run_id = running.get().claim.run_id
    orders, done = _orders(state), state.get("done", [])
    mine = sum(one.startswith(run_id) for one in done)
    await effect("step", orders["seconds"])
    if orders.get("fails") and mine + 1 == orders["steps"]:
        raise ValueError("told to fail")
    if chance("passing", run_id, mine) < PASSING and running.get().run.attempt == 0:
        raise Passing
    return {"done": [*done, f"{run_id}:{mine}"]}


def _more(state):
    run_id = running.get().claim.run_id
    mine = sum(one.startswith(run_id) for one in state["done"])
    return "step" if mine < _orders(state)["steps"] else END


async def verdict(task, state):
    """Of the work of `graded`: half of it goes back to it once or twice."""
    await asyncio.sleep(0.05)
    revised = len({one.partition(":")[0] for one in state["done"]})
    if chance("grader", revised) < PASSING and running.get().run.attempt == 0:
        raise Passing
    passed = chance("verdict", revised) < 50
    criterion = {"name": "is good", "passed": passed} | ({} if passed else {"gap": "it is not"})
    result = "satisfied" if passed else "needs_revision"
    return {"result": result, "explanation": "", "criteria": [criterion]}


steps = StateGraph(Steps).add_node("step", _step).add_edge(START, "step").add_conditional_edges("step", _more).compile()


async def _work(state):
    await effect("work", 0.05)


async def _ask(state):
    log("answered", value=interrupt({"how many": chance("question")}))


asker = (
    StateGraph(MessagesState)
    .add_node("before", _work)
    .add_node("ask", _ask)
    .add_node("after", _work)
    .add_edge(START, "before")
    .add_edge("before", "ask")
    .add_edge("ask", "after")
    .compile()
)


# --- agents with a model ---------------------------------------------------------------------------------------------


class Model(BaseChatModel):
    """Reads as a provider would, and says what `_say` makes of the turn."""

    @property
    def _llm_type(self):
        return "storm"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        raise NotImplementedError

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        read = [message for message in messages if message.type != "system"]
        why = provider.fault(provider.shape(read))
        notes = [note["id"] for one in read if (note := one.additional_kwargs.get("outrider_notification"))]
        log("read", step=get_config()["metadata"]["langgraph_step"], notes=notes, fault=why)
        if why:
            raise ValueError(f"refused: {why}")
        await asyncio.sleep(0.02)
        turn = sum(isinstance(message, AIMessage) for message in read)
        said = enumerate(self._say(turn, read))
        calls = [{"name": name, "args": args, "id": f"call-{turn}-{at}"} for at, (name, args) in said]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok", tool_calls=calls))])

    def _say(self, turn, read):
        """Names and arguments of the calls that it makes now; none ends its turn."""
        raise NotImplementedError


class Talker(Model):
    """Calls its tool several times at once, in a few turns."""

    def _say(self, turn, read):
        if sum(isinstance(message, ToolMessage) for message in read) >= 2:
            return []
        return [("work", {"what": f"{turn}-{at}"}) for at in range(1 + chance("calls", turn) % 3)]


class Lead(Model):
    """Starts children in its first turn, and sometimes another one or a cancel in those that news bring."""

    deepest: int = 1  #: how many generations of leads stand above

    def _say(self, turn, read):
        started = [found[1] for message in read if (found := TASK_ID.match(str(message.content)))]
        if turn == 0:
            return [self._child(at) for at in range(1 + chance("children") % 3)]
        if isinstance(read[-1], ToolMessage):
            return []  # rest
        dice = chance("turn", turn)
        if dice < 15 and len(started) < 5:
            return [self._child(len(started))]
        if dice < 25 and started:
            child = started[dice % len(started)]
            log("cancels", child=child)
            return [("cancel_async_task", {"task_id": child})]
        if dice < 35 and started:
            return [("check_async_task", {"task_id": started[dice % len(started)]})]
        return []

    def _child(self, at):
        dice = chance("child", at)
        depth = len(running.get().task.ancestors)
        kinds = ["lead"] * 10 * (depth < self.deepest) + ["talker"] * 25 + ["asker"] * 10
        kinds += ["graded"] * 15 + ["fork"] * 10 + ["steps"] * 30
        kind = kinds[dice % len(kinds)]
        orders = {"steps": 1 + dice % 4, "seconds": 0.02 + dice / 1000, "fails": dice % 10 == 0}
        return "start_async_task", {"description": json.dumps(orders), "subagent_type": kind}


@tool
async def work(what: str, runtime: ToolRuntime) -> str:
    """Work on something."""
    await effect(runtime.tool_call_id, 0.02 + chance(what) / 1000)
    return f"did {what}"


talker = create_agent(Talker(), tools=[work])
lead = create_agent(Lead(), middleware=[BackgroundSubagents(SUBAGENTS)])
deep_lead = create_deep_agent(Lead(), middleware=[BackgroundSubagents(SUBAGENTS)])
