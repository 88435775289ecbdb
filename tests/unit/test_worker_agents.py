"""From `langgraph.json` to graphs: every form, what is refused, and what the catalogue is told."""

import json
from contextlib import asynccontextmanager

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.graph.message import MessagesState
from typing_extensions import TypedDict

from outrider.shared.config import Config
from outrider.shared.errors import BrokenAgent, UnknownAgent
from outrider.worker.agents import Agents, Factory, Shape, as_graph
from outrider.worker.loading import load


class State(TypedDict):
    question: str
    answer: str


def graph(schema=State):
    made = StateGraph(schema)
    made.add_node("only", lambda _: {})
    made.add_edge(START, "only")
    return made


SOURCE = """
from langgraph.graph import START, StateGraph
from langgraph.graph.message import MessagesState

made = StateGraph(MessagesState)
made.add_node("only", lambda _: {})
made.add_edge(START, "only")
agent = made.compile()

def factory():
    return made
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def agents(folder, graphs, **sections):
    (folder / "langgraph.json").write_text(json.dumps({"graphs": graphs, "outrider": {"agents": sections}}))
    config = Config.load(folder / "langgraph.json")
    return Agents(config.agents, config.folder)


def test_the_catalogue_is_told_of_each_agent_and_why_one_is_broken(folder):
    (folder / "one_agent.py").write_text(SOURCE)
    (folder / "broken_agent.py").write_text("raise RuntimeError('no key')")
    made = agents(
        folder,
        {
            "good": "./one_agent.py:agent",
            "made": "one_agent:factory",
            "bad": "./broken_agent.py:agent",
            "gone": "./no_such.py:agent",
        },
        good={"description": "answers", "queue": "own"},
    )
    good, by_factory, bad, gone = made.warm()
    assert (good.description, good.queue, good.input_keys, good.has_messages, good.broken) == (
        "answers",
        "own",
        ("messages",),
        True,
        None,
    )
    assert (by_factory.input_keys, by_factory.broken) == (None, None)
    assert bad.broken == "./broken_agent.py:agent: RuntimeError at broken_agent.py:1: no key"
    assert "there is no file" in gone.broken


async def test_an_agent_that_cannot_be_had_is_named(folder):
    (folder / "broken_agent.py").write_text("import no_such_module_anywhere")
    made = agents(folder, {"bad": "./broken_agent.py:agent"})
    for _ in range(2):  # the second time from what is known
        with pytest.raises(BrokenAgent, match="no_such_module_anywhere"):
            async with made.open("bad", {}):
                pass
    with pytest.raises(UnknownAgent, match="bad"):
        async with made.open("other", {}):
            pass


def test_a_module_has_the_same_name_in_every_worker(folder):
    (folder / "package").mkdir()
    (folder / "package" / "part.py").write_text("class State: pass")
    assert load("./package/part.py:State", folder) is load("package.part:State", folder)
    assert load("./package/part.py:State", folder).__module__ == "package.part"


def test_a_file_that_an_installed_module_hides_is_still_found(folder):
    (folder / "json.py").write_text("agent = 'ours'")
    (folder / "not-a-name.py").write_text("agent = 'odd'")
    assert load("./json.py:agent", folder) == "ours"
    assert load("./not-a-name.py:agent", folder) == "odd"
    with pytest.raises(AttributeError, match="has no 'other'"):
        load("./json.py:other", folder)


def test_a_module_that_failed_is_tried_anew(folder):
    (folder / "json.py").write_text("raise ValueError")
    with pytest.raises(ValueError, match=r"^$"):
        load("./json.py:agent", folder)
    (folder / "json.py").write_text("agent = 'mended'  # longer: the cache of bytecode goes by size and second")
    assert load("./json.py:agent", folder) == "mended"


def test_a_graph_whose_state_cannot_be_read_is_broken(folder):
    (folder / "unread_agent.py").write_text(SOURCE + "\nagent.builder.schemas.clear()")
    (published,) = agents(folder, {"unread": "./unread_agent.py:agent"}).warm()
    assert published.broken.startswith("./unread_agent.py:agent: KeyError")


def test_the_shape_of_a_graph():
    assert Shape.of(graph().compile()) == Shape(("question", "answer"), has_messages=False)
    assert Shape.of(graph(MessagesState).compile()).has_messages


@pytest.mark.parametrize("what", [graph(), graph().compile()])
def test_graphs_in_both_forms(what):
    assert type(as_graph(what)).__name__ == "CompiledStateGraph"


@pytest.mark.parametrize("what", [graph().compile().with_retry(), {"a": 1}, State, None, "text"])
def test_what_is_no_agent_is_refused_by_its_type(what):
    with pytest.raises(TypeError, match=r"is no agent: name a compiled graph, a StateGraph, or a factory"):
        Factory.of(what)


def test_a_factory_that_wants_more_is_refused():
    with pytest.raises(TypeError, match="wants config, model"):
        Factory.of(lambda config, model: (config, model))


def _no_argument():
    return graph()


def _with_default(model="small"):
    assert model == "small"
    return graph()


def _any_name(cfg):
    assert cfg == {"tags": ["here"]}
    return graph()


def _by_annotation(model="small", given: RunnableConfig | None = None):
    assert (model, given) == ("small", {"tags": ["here"]})
    return graph()


def _keyword(*, config):
    assert config == {"tags": ["here"]}
    return graph()


async def _async(config):
    assert config == {"tags": ["here"]}
    return graph().compile()


@asynccontextmanager
async def _manager(config):
    assert config == {"tags": ["here"]}
    yield graph().compile()


class _Callable:
    def __call__(self, config):
        assert config == {"tags": ["here"]}
        return graph()


@pytest.mark.parametrize(
    "call",
    [_no_argument, _with_default, _any_name, _by_annotation, _keyword, _async, _manager, _Callable()],
    ids=lambda call: getattr(call, "__name__", "object"),
)
async def test_every_form_of_a_factory_is_given_what_it_wants(call):
    async with Factory.of(call).open("name", {"tags": ["here"]}) as made:
        assert type(made).__name__ == "CompiledStateGraph"


async def test_a_factory_that_gives_no_graph_is_broken():
    with pytest.raises(BrokenAgent, match="gave a str, not a graph"):
        async with Factory.of(lambda: "text").open("name", {}):
            pass
