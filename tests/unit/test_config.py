"""`langgraph.json`: what we read of it, and what a mistake in it says."""

import json
import os

import pytest

from outrider.shared.config import AgentEntry, Config
from outrider.shared.errors import ConfigError
from outrider.shared.grader_config import Grading
from outrider.shared.limits import Limits


@pytest.fixture
def write(tmp_path):
    def write(content):
        file = tmp_path / "langgraph.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    return write


def test_a_file_of_langgraph_users_works_as_it_stands(write):
    config = Config.load(
        write(
            {
                "dependencies": ["."],
                "graphs": {"a": "./a.py:graph", "b": {"path": "pkg.b:make"}},
                "env": {"K": "v"},
                "http": {},
            }
        )
    )
    assert config.agents == {"a": AgentEntry("a", "./a.py:graph"), "b": AgentEntry("b", "pkg.b:make")}
    assert (config.env, config.queues()) == ({"K": "v"}, [])


def test_our_section_sets_defaults(write):
    agent = {"queue": "slow", "input": "question", "limits": {"timeout_seconds": 60}, "description": "Reads."}
    agent |= {"concurrency": 4, "max_attempts": 5, "retry_on": ["Busy", "httpx.HTTPError"]}
    config = Config.load(write({"graphs": {"a": "a:a"}, "outrider": {"agents": {"a": agent}}}))
    limits, retry_on = Limits(timeout_seconds=60), ("Busy", "httpx.HTTPError")
    assert config.agents["a"] == AgentEntry("a", "a:a", "slow", "question", limits, "Reads.", 4, Grading(), 5, retry_on)
    assert config.queues() == ["slow"]


def test_the_slots_of_an_agent_are_its_concurrency(write):
    config = Config.load(write({"graphs": {"a": "a:a", "b": "b:b"}, "outrider": {"agents": {"a": {"concurrency": 2}}}}))
    assert [config.slots(name) for name in ("a", "b", "gone")] == [2, 0, 0]


def test_env_comes_from_a_file_and_the_process_wins(write, tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("OUTRIDER_TEST_A=file\nOUTRIDER_TEST_B=file\n")
    monkeypatch.setenv("OUTRIDER_TEST_A", "process")
    monkeypatch.setenv("OUTRIDER_TEST_B", "x")
    monkeypatch.delenv("OUTRIDER_TEST_B")
    Config.load(write({"graphs": {"a": "a:a"}, "env": ".env"})).apply_env()
    assert (os.environ["OUTRIDER_TEST_A"], os.environ["OUTRIDER_TEST_B"]) == ("process", "file")


def of_agent(**section):
    return {"graphs": {"a": "a:a"}, "outrider": {"agents": {"a": section}}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ("[" * 100_000, "is not JSON: maximum recursion depth"),
        ('{"graphs": {"a": "a:a"}, "other": ' + "9" * 5_000 + "}", "is not JSON: Exceeds the limit"),
        ({"graphs": {"a" * 50_000: "a:a"}}, '…": the name must match'),
        ({"graphs": {"a": "a" * 50_000}}, "…: must be"),
        ({"graphs": {"a": "a:a"}, "env": "e" * 50_000}, "…: cannot be read: File name too long"),
        ({"graphs": {"a": "a:a"}, "env": "."}, "'.': cannot be read: is no regular file"),
        ({"graphs": {"a": "a:a"}, "env": {"A": None}}, '"env.A" = None: must be text or a number'),
        ({"graphs": {"a": "a:a"}, "env": {"A": {"B": 1}}}, " = {'B': 1}: must be text or a number"),
        ({"graphs": {"a": "a:a"}, "outrider": {"k" * 50_000: 1}}, "… (known: agents, grader)"),
        ({}, "names no agent"),
        ({"graphs": {"a": 3}}, '"graphs.a" = 3'),
        ({"graphs": {"a": "file.py"}}, "\"graphs.a\" = 'file.py'"),
        ({"graphs": {"a": ":x"}}, "\"graphs.a\" = ':x'"),
        ({"graphs": {"a/b": "a:a"}}, "the name must match"),
        ({"graphs": {"a": "a:a"}, "env": "nope.env"}, "'nope.env': cannot be read: No such file"),
        ({"graphs": {"a": "a:a"}, "env": 3}, '"env" = 3'),
        ({"graphs": {"a": "a:a"}, "env": {"": "x"}}, "\"env\" has ''"),
        ({"graphs": {"a": "a:a"}, "env": {"A=B": "x"}}, "\"env\" has 'A=B'"),
        ({"graphs": {"a": "a:a"}, "env": {"A": "\0"}}, "\"env\" has 'A'"),
        ({"graphs": {"a": "a:a"}, "env": {"A\ud835": "x"}}, '"env" has \'A'),
        ({"graphs": {"a": "a:a"}, "outrider": {"agent": {}}}, "unknown key 'agent' (known: agents, grader)"),
        ({"graphs": {"a": "a:a"}, "outrider": {"agents": {"b": {}}}}, "unknown agent 'b' (known: a)"),
        (of_agent(quue="x"), "unknown key 'quue'"),
        (of_agent(queue=""), "\"queue\" = ''"),
        (of_agent(queue="a b"), "\"queue\" = 'a b'"),
        (of_agent(limits={"max_turns": True}), "max_turns = True"),
        (of_agent(limits={"max_turn": 1}), "unknown key 'max_turn'"),
        (of_agent(limits=[]), '"limits" = []'),
        (of_agent(concurrency=0), '"concurrency" = 0: must be a whole number above zero'),
        (of_agent(concurrency=2**53 + 1), "at most 9,007,199,254,740,992"),
        (of_agent(limits={"max_turns": 10**400}), "max_turns = 1000"),
        (of_agent(limits={"max_children": 10**400}), "max_children = 1000"),
        (of_agent(limits={"timeout_seconds": 1e300}), "timeout_seconds = 1e+300"),
        (of_agent(concurrency=True), '"concurrency" = True'),
        (of_agent(concurrency=1.5), '"concurrency" = 1.5'),
        (of_agent(concurrency="2"), "\"concurrency\" = '2'"),
        (of_agent(limits={"idle_seconds": float("nan")}), "idle_seconds = nan"),
        (of_agent(max_attempts=0), '"max_attempts" = 0: must be a whole number above zero'),
        (of_agent(max_attempts=True), '"max_attempts" = True'),
        (of_agent(max_attempts=1.5), '"max_attempts" = 1.5'),
        (of_agent(retry_on="Busy"), "\"retry_on\" = 'Busy': must be a list of types of errors"),
        (of_agent(retry_on=[""]), "\"retry_on\" = ['']"),
        (of_agent(retry_on=["httpx:HTTPError"]), "\"retry_on\" = ['httpx:HTTPError']"),
        (of_agent(retry_on=[3]), '"retry_on" = [3]'),
    ],
)
def test_a_mistake_is_named_with_its_place(write, content, said):
    with pytest.raises(ConfigError) as error:
        Config.load(write(content))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing_names_the_variable(tmp_path):
    with pytest.raises(ConfigError, match=r"no langgraph.json in .*OUTRIDER_CONFIG"):
        Config.load(tmp_path / "langgraph.json")
