"""What stands in for LangGraph's faults, held against LangGraph itself."""

import operator
from typing import Annotated

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.runtime import RunControl
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from outrider.worker.upstream import answer_each_question_once, begin_what_had_not_begun


class State(TypedDict):
    answers: list[str]


def graph_that(ask):
    graph = StateGraph(State)
    graph.add_node("asks", ask)
    graph.add_edge(START, "asks")
    return graph


def questions(output):
    return [question.value for question in output["__interrupt__"]]


@pytest.mark.parametrize("nested", [False, True])
async def test_an_answer_that_is_given_again_does_not_answer_the_next_question(nested):
    answer_each_question_once()
    answer_each_question_once()
    failing = [ValueError("the connection to a model is lost")]

    async def ask(_state):
        first = interrupt("first?")
        if failing:
            raise failing.pop()
        return {"answers": [first, interrupt("second?")]}

    graph = graph_that(ask)
    if nested:
        graph = graph_that(graph.compile())
    agent = graph.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    asked = await agent.ainvoke({"answers": []}, config)
    answers = Command(resume={asked["__interrupt__"][0].id: "yes"})
    with pytest.raises(ValueError, match="is lost"):
        await agent.ainvoke(answers, config)
    for _ in range(2):
        asked = await agent.ainvoke(answers, config)
        assert questions(asked) == ["second?"]
    done = await agent.ainvoke(Command(resume={asked["__interrupt__"][0].id: "no"}), config)
    assert done["answers"] == ["yes", "no"]


async def test_an_answer_that_came_is_given_to_a_function_that_asks():
    answer_each_question_once()

    @entrypoint(checkpointer=InMemorySaver())
    async def agent(_given):
        return [interrupt("first?"), interrupt("second?")]

    config = {"configurable": {"thread_id": "t"}}
    asked = await agent.ainvoke({}, config)
    for n, question in enumerate(("first?", "second?")):
        assert questions(asked) == [question]
        asked = await agent.ainvoke(Command(resume={asked["__interrupt__"][0].id: n}), config)
    assert asked == [0, 1]


class Said(TypedDict):
    said: list[str]


class Kept(TypedDict):
    said: Annotated[list[str], operator.add]


@pytest.mark.parametrize("called", [False, True])
async def test_an_agent_that_keeps_its_state_takes_its_input_though_its_step_is_executed_once_more(called):
    begin_what_had_not_begun()
    begin_what_had_not_begun()
    faults = {"before": [], "in the middle": []}

    def fail(where):
        if faults[where]:
            raise faults[where].pop()

    async def middle(_state):
        fail("in the middle")
        return {"said": ["answered"]}

    keeps = StateGraph(Kept).add_node("first", lambda _: {}).add_node("middle", middle)
    inner = keeps.add_edge(START, "first").add_edge("first", "middle").compile(checkpointer=True)

    async def ask(state):
        fail("before")
        return await inner.ainvoke(state)

    drained, saver = RunControl(), InMemorySaver()
    outer = StateGraph(Said).add_node("drain", lambda _: drained.request_drain())
    outer.add_node("inner", ask if called else inner).add_edge(START, "drain").add_edge("drain", "inner")
    agent = outer.compile(checkpointer=saver)

    async def run(run_id, control=None):
        config = {"configurable": {"thread_id": "t"}, "metadata": {"run_id": run_id}}
        await agent.ainvoke({"said": [run_id]}, config, control=control, durability="sync")

    for run_id in ("one", "two", "three"):
        with pytest.raises(GraphDrained):
            await run(run_id, drained)
        for where in ("before", "in the middle") if called else ("in the middle",):
            faults[where].append(ValueError(where))
            with pytest.raises(ValueError, match=where):
                await run(run_id)
        await run(run_id)
    kept = saver.get({"configurable": {"thread_id": "t", "checkpoint_ns": "inner"}})
    assert kept["channel_values"]["said"] == ["one", "answered", "two", "answered", "three", "answered"]
