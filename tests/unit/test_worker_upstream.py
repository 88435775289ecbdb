"""What stands in for LangGraph's faults, held against LangGraph itself."""

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from outrider.worker.upstream import answer_each_question_once


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
