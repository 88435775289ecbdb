"""The saver against LangGraph itself: conformance, the same runs as in memory, deep agents, and what a step costs."""

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from checkpoint_graphs import Deltas, Numbers, chain, claimed, consistent, keys_of, talk, thread
from outrider.shared.checkpoints import SLACK, RedisSaver
from outrider.shared.keys import Keys


async def test_conformance_with_every_capability(any_redis, namespace):
    @checkpointer_test(name="RedisSaver")
    async def fresh():
        yield RedisSaver(any_redis, Keys(namespace))

    report = await validate(fresh)
    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    assert {name for name, result in report.results.items() if result.passed} == {each.value for each in Capability}


# The same run, in memory and in Redis


def shape(state) -> Any:
    """What of a state must be the same under every saver: all but ids and times."""
    metadata = dict(state.metadata or {})
    metadata.pop("parents", None)
    return (
        state.values,
        state.next,
        metadata,
        [(each.name, each.path, each.error, [i.value for i in each.interrupts], each.result) for each in state.tasks],
    )


async def both(any_redis, namespace, graph, script, **options):
    """Run `script(graph)` with each saver; hold that all states are the same, and return ours."""
    kept = []
    saver, _ = await claimed(any_redis, namespace, keep_steps=1000, **options)
    for each in (InMemorySaver(), saver):
        compiled = graph.copy({"checkpointer": each})
        said = await script(compiled)
        history = [shape(state) async for state in compiled.aget_state_history(thread())]
        kept.append((said, shape(await compiled.aget_state(thread())), history))
    assert kept[0][0] == kept[1][0]
    assert kept[0][1] == kept[1][1]
    assert kept[0][2] == kept[1][2]
    await consistent(any_redis, namespace)
    return kept[1]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("state", [Numbers, Deltas])
async def test_runs_follow_ups_and_retries(any_redis, namespace, durability, state):
    failing = [True]

    async def flaky(_):
        if failing[0]:
            raise ConnectionError("lost")
        return {"x": ["flaky"]}

    builder = StateGraph(state)
    builder.add_node("a", lambda _: {"x": ["a"]})
    builder.add_node("b", flaky)
    builder.add_node("c", lambda _: {"x": ["c"]})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", "c")

    async def script(graph):
        said = []
        for turn in range(4):
            failing[0] = True
            with pytest.raises(ConnectionError):
                await graph.ainvoke({"x": [turn]}, thread(run_id=f"r{turn}"), durability=durability)
            failing[0] = False
            said.append(await graph.ainvoke({"x": [turn]}, thread(run_id=f"r{turn}"), durability=durability))
        return said

    said, now, _ = await both(any_redis, namespace, builder.compile(), script)
    assert now[0]["x"] == said[-1]["x"]
    assert len(now[0]["x"]) == 16


async def test_parallel_branches_sends_and_questions(any_redis, namespace):
    class State(TypedDict):
        x: Annotated[list, operator.add]
        n: int

    async def ask(state):  # on the loop: threads would ask in any order
        return {"x": [interrupt(f"question {state['n']}")]}

    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {"x": ["plan"], "n": len(state["x"])})
    builder.add_node("ask", ask)
    builder.add_node("left", lambda _: {"x": ["left"]})
    builder.add_node("right", lambda _: {"x": ["right"]})
    builder.add_node("join", lambda _: {"x": ["join"]}, defer=True)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda _: [Send("ask", {"n": n}) for n in range(4)], ["ask"])
    builder.add_edge("plan", "left")
    builder.add_edge("plan", "right")
    for before in ("left", "right", "ask"):
        builder.add_edge(before, "join")

    async def script(graph):
        said = []
        out = await graph.ainvoke({"x": ["in"]}, thread(), durability="sync")
        while questions := out.get("__interrupt__"):
            said.append([each.value for each in questions])
            out = await graph.ainvoke(
                Command(resume={questions[-1].id: len(said)}), thread(run_id=f"r{len(said)}"), durability="sync"
            )
        return said, out

    said, _, _ = await both(any_redis, namespace, builder.compile(), script)
    assert [len(each) for each in said[0]] == [4, 3, 2, 1]


async def test_subgraphs_with_and_without_memory(any_redis, namespace):
    inner = StateGraph(Numbers)
    inner.add_node("one", lambda _: {"x": ["one"]})
    inner.add_node("asks", lambda _: {"x": [interrupt("inner?")]})
    inner.add_edge(START, "one")
    inner.add_edge("one", "asks")
    keeps = StateGraph(Numbers)
    keeps.add_node("more", lambda state: {"x": [len(state["x"])]})
    keeps.add_edge(START, "more")
    forgetful, mindful = inner.compile(), keeps.compile(checkpointer=True)

    async def call(state):
        out = await mindful.ainvoke({"x": ["go"]})
        return {"x": [f"kept {len(out['x'])}"]}

    outer = StateGraph(Numbers)
    outer.add_node("sub", forgetful)
    outer.add_node("call", call)
    outer.add_edge(START, "sub")
    outer.add_edge("sub", "call")

    async def script(graph):
        said = []
        for turn in range(3):
            await graph.ainvoke({"x": [turn]}, thread(run_id=f"r{turn}"), durability="sync")
            asked = await graph.aget_state(thread(), subgraphs=True)
            said.append([shape(each.state) for each in asked.tasks])
            said.append(await graph.ainvoke(Command(resume="yes"), thread(run_id=f"s{turn}"), durability="sync"))
        return said

    said, _, _ = await both(any_redis, namespace, outer.compile(), script)
    assert [each["x"][-1] for each in said[1::2]] == ["kept 2", "kept 4", "kept 6"]


@pytest.mark.parametrize("state", [Numbers, Deltas])
async def test_time_travel_and_forks(any_redis, namespace, state):
    async def script(graph):
        await graph.ainvoke({"x": ["in"]}, thread(), durability="sync")
        history = [each async for each in graph.aget_state_history(thread())]
        said = []
        for at in (2, 4, 1):
            fork = await graph.aupdate_state(history[at].config, {"x": [f"fork {at}"]})
            said.append(await graph.ainvoke(None, fork, durability="sync"))
            said.append(await graph.ainvoke(None, history[at].config, durability="sync"))
            said.append((await graph.aget_state(history[0].config)).values)
        copied = await graph.aupdate_state(history[1].config, None, as_node="__copy__")
        said.append((await graph.aget_state(copied)).values)
        return said

    await both(any_redis, namespace, chain(5, state), script)


async def test_the_functional_interface(any_redis, namespace):
    @task
    async def double(n):
        return n * 2

    @entrypoint()
    async def flow(numbers, *, previous=None):
        doubled = await asyncio.gather(*(double(n) for n in numbers))
        answer = interrupt("more?")
        return entrypoint.final(value=[*doubled, answer], save=[*(previous or []), *doubled])

    async def script(graph):
        await graph.ainvoke([1, 2, 3], thread(), durability="sync")
        first = await graph.ainvoke(Command(resume="no"), thread(run_id="s"), durability="sync")
        await graph.ainvoke([4], thread(run_id="u"), durability="sync")
        return first, await graph.ainvoke(Command(resume="yes"), thread(run_id="v"), durability="sync")

    said, _, _ = await both(any_redis, namespace, flow, script)
    assert said == ([2, 4, 6, "no"], [8, "yes"])


# Pruning as the task goes


@pytest.mark.parametrize("state", [Numbers, Deltas])
async def test_a_long_task_keeps_its_last_steps_whole(any_redis, namespace, state):
    class Loop(state):
        left: int

    builder = StateGraph(Loop)
    builder.add_node("step", lambda now: {"x": [f"{now['left']}" * 50], "left": now["left"] - 1})
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda now: "step" if now["left"] else END)
    graph, saver = builder.compile(), (await claimed(any_redis, namespace, keep_steps=8))[0]
    kept, whole = (graph.copy({"checkpointer": each}) for each in (saver, InMemorySaver()))
    for turn in range(4):
        given = {"x": [f"turn {turn}"], "left": 33}
        for each in (kept, whole):
            await each.ainvoke(
                given | ({"rare": [turn]} if "rare" in Loop.__annotations__ else {}),
                thread(run_id=f"r{turn}"),
                durability="sync",
            )
        await consistent(any_redis, namespace)
        ours = [shape(each) async for each in kept.aget_state_history(thread())]
        theirs = [shape(each) async for each in whole.aget_state_history(thread())]
        assert 8 <= len(ours) < 8 + SLACK
        assert ours == theirs[: len(ours)]
    links = await any_redis.zcount(f"{{{namespace}}}:ckpt:t:order:", "-inf", "(0")
    assert links <= 30


async def test_a_link_cannot_be_read_as_a_checkpoint(any_redis, namespace):
    saver, _ = await claimed(any_redis, namespace)
    graph = chain(3, Deltas).copy({"checkpointer": saver})
    await graph.ainvoke({"x": ["in"]}, thread(), durability="sync")
    before = [each.config async for each in saver.alist(thread())]
    await saver.aprune(["t"])
    assert await any_redis.zcount(f"{{{namespace}}}:ckpt:t:order:", "-inf", "(0")
    assert [await saver.aget_tuple(config) for config in before[1:]] == [None] * 4
    assert len([each async for each in saver.alist(thread())]) == 1


async def test_parallel_writes_of_a_delta_channel_keep_their_order(any_redis, namespace):
    builder, last = StateGraph(Deltas), asyncio.Event()
    builder.add_node("plan", lambda _: {"rare": ["plan"]})
    for at in range(12):

        async def node(_, at=at):
            # The first in order is the last to write.
            await last.wait() if at == 0 else None
            if at == 9:
                last.set()
            return {"x": [at], "rare": [at]}

        builder.add_node(f"n{at}", node)
        builder.add_edge("plan", f"n{at}")
        builder.add_edge(f"n{at}", "end")
    builder.add_node("end", lambda _: {"x": ["end"]}, defer=True)
    builder.add_edge(START, "plan")

    async def script(graph):
        last.clear()
        out = await graph.ainvoke({"x": ["in"]}, thread(), durability="sync")
        assert (await graph.aget_state(thread())).values == out
        return out

    await both(any_redis, namespace, builder.compile(), script)


async def test_a_question_outlives_pruning(any_redis, namespace):
    builder = StateGraph(Numbers)
    for at in range(30):
        builder.add_node(f"n{at}", lambda _, at=at: {"x": [at]})
        builder.add_edge(f"n{at - 1}" if at else START, f"n{at}")
    sub = StateGraph(Numbers)
    sub.add_node("ask", lambda _: {"x": [interrupt("?")]})
    sub.add_edge(START, "ask")
    builder.add_node("sub", sub.compile())
    builder.add_edge("n29", "sub")
    saver, _ = await claimed(any_redis, namespace, keep_steps=2)
    graph = builder.compile().copy({"checkpointer": saver})
    out = await graph.ainvoke({"x": []}, thread(), durability="sync")
    await saver._prune_old("t", "")
    await RedisSaver(any_redis, Keys(namespace)).aprune(["t"])
    out = await graph.ainvoke(
        Command(resume={out["__interrupt__"][0].id: "answer"}), thread(run_id="s"), durability="sync"
    )
    assert out["x"][-1] == "answer"
    assert out["x"].count("answer") == 1


async def test_deleting_runs_keeps_what_later_deltas_need(any_redis, namespace):
    saver, _ = await claimed(any_redis, namespace)
    graph = chain(3, Deltas).copy({"checkpointer": saver})
    for turn in range(3):
        await graph.ainvoke({"x": [f"turn {turn}"]}, thread(run_id=f"r{turn}"), durability="sync")
    values = (await graph.aget_state(thread())).values
    await saver.adelete_for_runs(["r0", "r1"])
    runs = {each.metadata["run_id"] async for each in saver.alist(thread())}
    assert runs == {"r2"}
    assert (await graph.aget_state(thread())).values == values
    await saver.adelete_for_runs(["r2"])
    assert await saver.aget_tuple(thread()) is None
    await saver.adelete_thread("t")
    assert await keys_of(any_redis, namespace) == []


async def test_deleting_the_newest_run_makes_the_one_before_the_head(any_redis, namespace):
    saver, _ = await claimed(any_redis, namespace)
    graph = chain(2).copy({"checkpointer": saver})
    for turn in range(2):
        await graph.ainvoke({"x": [f"turn {turn}"]}, thread(run_id=f"r{turn}"), durability="sync")
    await saver.adelete_for_runs(["r1"])
    assert (await graph.aget_state(thread())).values["x"] == ["turn 0", 0, 1]


# A deep agent, whose messages and files are delta channels


class Scripted(BaseChatModel):
    """Calls a tool on each turn but every fiftieth, which ends the run."""

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, *_, **__):
        return self

    def _generate(self, messages, *_, **__):
        turn = sum(isinstance(each, AIMessage) for each in messages)
        if turn % 50 == 49:
            answer = AIMessage(f"done {turn}")
        elif turn == 3:
            call = {"name": "write_file", "args": {"file_path": "/note.txt", "content": "kept"}, "id": f"c{turn}"}
            answer = AIMessage("", tool_calls=[call])
        else:
            answer = AIMessage("", tool_calls=[{"name": "echo", "args": {"text": f"turn {turn}"}, "id": f"c{turn}"}])
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


async def test_a_deep_agents_state_is_read_back_from_deltas(any_redis, namespace):
    from deepagents import create_deep_agent

    def told(state):
        return [(each.type, each.content) for each in state.values["messages"]], set(state.values.get("files", {}))

    agent = create_deep_agent(model=Scripted(), tools=[echo])
    saver, _ = await claimed(any_redis, namespace)
    ours, memory = (agent.copy({"checkpointer": each}) for each in (saver, InMemorySaver()))
    for turn in range(2):
        for each in (ours, memory):
            await each.ainvoke({"messages": [HumanMessage(f"go {turn}")]}, thread(run_id=f"r{turn}"), durability="sync")
    theirs = [told(each) async for each in memory.aget_state_history(thread())]
    assert len(theirs[0][0]) == 200
    assert theirs[0][1] == {"/note.txt"}

    reader = RedisSaver(any_redis, Keys(namespace))
    graph = agent.copy({"checkpointer": reader})
    history = [told(each) async for each in graph.aget_state_history(thread())]
    assert 20 <= len(history) < 20 + SLACK
    assert history == theirs[: len(history)]
    await consistent(any_redis, namespace)

    await reader.acopy_thread("t", "copy")
    await reader.aprune(["t"])
    assert [told(each) async for each in graph.aget_state_history(thread())] == theirs[:1]
    await reader.adelete_thread("t")
    assert [told(each) async for each in graph.aget_state_history(thread("copy"))] == history
    await consistent(any_redis, namespace, "copy")


# What a step costs


def words(at, size):
    """Text that no compressor shrinks to nothing, the same for the same `at`."""
    text, value = [], at * 7919 + 1
    while len(text) * 7 < size:
        value = value * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        text.append(f"{value >> 40:06x} ")
    return "".join(text)[:size]


async def measured(redis, section, name):
    return (await redis.info(section))[name]


@pytest.mark.parametrize(("count", "size"), [(2000, 1000), (20_000, 100), (2, 1_000_000)], ids=["many", "tiny", "big"])
@pytest.mark.parametrize("delta", [False, True], ids=["plain", "delta"])
async def test_a_step_of_a_long_conversation_writes_what_is_new(real_redis, namespace, count, size, delta):
    builder, given = talk(100, lambda at: words(at, 1000), delta=delta)
    saver, _ = await claimed(real_redis, namespace)
    graph = builder.copy({"checkpointer": saver})
    messages = [HumanMessage(words(-at, size)) for at in range(1, count + 1)]
    memory = await measured(real_redis, "memory", "used_memory")
    read, steps = await measured(real_redis, "stats", "total_net_input_bytes"), []
    async for _ in graph.astream({"messages": messages, **given}, thread(), durability="sync", stream_mode="updates"):
        now = await measured(real_redis, "stats", "total_net_input_bytes")
        steps.append(now - read)
        read = now
    assert len(steps) == 100
    assert max(steps[1:]) <= 100_000
    assert await measured(real_redis, "memory", "used_memory") - memory <= 3 * (count * size + 100_000)
    state = await builder.copy({"checkpointer": RedisSaver(real_redis, Keys(namespace))}).aget_state(thread())
    assert [each.content for each in state.values["messages"][:3]] == [words(-at, size) for at in range(1, 4)][
        :count
    ] + ([words(count, 1000)] if count < 3 else [])
    assert len(state.values["messages"]) == count + 100
    await consistent(real_redis, namespace)
    await RedisSaver(real_redis, Keys(namespace)).adelete_thread("t")
    assert await keys_of(real_redis, namespace) == []
