"""The state of a thread is read without its graph, and is what the graph itself would give."""

import operator
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages

from outrider.shared.checkpoints import RedisSaver
from outrider.shared.keys import Keys
from outrider.shared.thread_state import read_state


@pytest.fixture
def keys(namespace):
    return Keys(namespace)


@pytest.fixture
def config():
    return {"configurable": {"thread_id": "one"}}


async def test_a_thread_that_was_never_saved_is_empty(any_redis, keys):
    assert await read_state(any_redis, keys, "one") == {}


async def test_plain_channels_come_as_they_are(any_redis, keys, config):
    class State(TypedDict):
        messages: Annotated[list[BaseMessage], add_messages]
        numbers: Annotated[list[int], operator.add]
        unset: str

    graph = (
        StateGraph(State)
        .add_node("work", lambda _: {"messages": [AIMessage("two", id="b")], "numbers": [2]})
        .add_edge(START, "work")
        .compile(checkpointer=RedisSaver(any_redis, keys))
    )
    await graph.ainvoke({"messages": [HumanMessage("one", id="a")], "numbers": [1]}, config)
    state = await read_state(any_redis, keys, "one")
    assert state == (await graph.aget_state(config)).values
    assert [type(message) for message in state["messages"]] == [HumanMessage, AIMessage]
    assert state["numbers"] == [1, 2]


async def test_what_held_for_one_step_is_gone(any_redis, keys, config):
    class Again(AgentMiddleware):
        @hook_config(can_jump_to=["model"])
        def after_model(self, state, runtime):
            return {"jump_to": "model"} if len(state["messages"]) == 2 else None

    model = Model(messages=iter([AIMessage("one"), AIMessage("two")]))
    agent = create_agent(model, middleware=[Again()], checkpointer=RedisSaver(any_redis, keys))
    await agent.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
    assert (await read_state(any_redis, keys, "one")).keys() == {"messages"}


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self


async def test_a_deep_agents_messages_and_files_are_restored(any_redis, keys, config):
    """Its channels are stored as changes since a snapshot: both within the first snapshot and after one."""
    deepagents = pytest.importorskip("deepagents")
    calls = [
        AIMessage(
            "", tool_calls=[{"name": "write_file", "args": {"file_path": f"/{n}", "content": f"{n}"}, "id": f"c{n}"}]
        )
        for n in range(30)
    ]
    model = Model(messages=iter([*calls, AIMessage("done", id="last")]))
    agent = deepagents.create_deep_agent(model=model, checkpointer=RedisSaver(any_redis, keys))
    seen = 0
    async for _ in agent.astream({"messages": [HumanMessage("go", id="first")]}, config, durability="sync"):
        seen += 1
        if seen in {3, 20}:
            await check(agent, any_redis, keys, config)
    await check(agent, any_redis, keys, config)
    await agent.aupdate_state(config, {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("new", id="n")]})
    assert [message.id for message in (await check(agent, any_redis, keys, config))["messages"]] == ["n"]


async def check(agent, redis, keys, config):
    state = await read_state(redis, keys, "one")
    expected = (await agent.aget_state(config)).values
    assert state["messages"] == expected["messages"]
    assert state.get("files") == expected.get("files")
    assert not [name for name in state if name.startswith(("__", "branch:"))]
    return state
