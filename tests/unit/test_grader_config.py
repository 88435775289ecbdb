"""What `langgraph.json` says of grading, and what a mistake in it says."""

import json
import os

import pytest

from outrider.shared.config import Config
from outrider.shared.errors import BadInput, ConfigError
from outrider.shared.grader_config import Command, GraderEntry, Grading
from outrider.shared.rubric import Rubric


@pytest.fixture
def load(tmp_path):
    def load(agent=None, grader=None):
        section = {"agents": {"a": agent or {}}} | ({"grader": grader} if grader is not None else {})
        file = tmp_path / "langgraph.json"
        file.write_text(json.dumps({"graphs": {"a": "./a.py:a"}, "outrider": section}))
        return Config.load(file)

    return load


def test_nothing_is_graded_by_default(load):
    config = load()
    assert (config.agents["a"].grading, config.grader) == (Grading(), GraderEntry())


def test_a_rubric_is_text_an_object_or_a_file(load, tmp_path):
    (tmp_path / "rubric.md").write_text("- It is short.\n")
    assert load({"rubric": "- It is short."}).agents["a"].grading.rubric == Rubric("- It is short.")
    assert load({"rubric": "@rubric.md"}).agents["a"].grading.rubric == Rubric("- It is short.\n")
    whole = {"text": "- It is short.", "max_iterations": 5, "model": "openai:gpt-5", "tools": ["files"]}
    assert load({"rubric": whole, "checks": "a.py:f"}).agents["a"].grading == Grading(Rubric(**whole), "a.py:f")
    assert load({"grades_itself": True}).agents["a"].grading.grades_itself


def test_graders_have_a_model_and_tools(load):
    command = {"name": "run_tests", "command": ["pytest", "-q"], "folder": "work", "timeout_seconds": 5}
    grader = load(grader={"model": "openai:gpt-5-mini", "tools": ["files", "t.py:search", command]}).grader
    assert grader == GraderEntry("openai:gpt-5-mini", ("files", "t.py:search", Command(**command)))
    assert grader.chosen(None) == grader.tools
    assert grader.chosen(("run_tests", "files")) == (Command(**command), "files")
    with pytest.raises(BadInput, match="there is no 'shell'"):
        grader.chosen(("shell",))


@pytest.mark.parametrize(
    ("agent", "grader", "said"),
    [
        ({"rubric": ""}, None, "text: must be text"),
        ({"rubric": "@gone.md"}, None, "@gone.md.*cannot be read"),
        ({"rubric": {"text": "a", "max_iterations": 0}}, None, "max_iterations"),
        ({"rubric": {"text": "a", "rounds": 2}}, None, "unknown key 'rounds'"),
        ({"checks": "nothing"}, None, "\"checks\" = 'nothing': must be"),
        ({"grades_itself": 1}, None, '"grades_itself" = 1: must be true or false'),
        ({"grades_itself": True, "checks": "a.py:f"}, None, "leave one of them out"),
        (None, {"models": "x"}, "unknown key 'models'"),
        (None, {"model": " "}, '"model"'),
        (None, {"tools": "files"}, "must be a list"),
        (None, {"tools": ["shell"]}, "'shell': must be"),
        (None, {"tools": [{"name": "x"}]}, "\"command\" = nothing of 'x': must be a list of words, as in"),
        (
            None,
            {"tools": [{"name": "no spaces", "command": ["x"]}]},
            "\"name\" = 'no spaces' of .*: must be of letters",
        ),
        (None, {"tools": [{"command": ["x"]}]}, '"name" = nothing of .*: must be of letters'),
        (None, {"tools": [{"name": "x", "command": []}]}, "\"command\" = .. of 'x': must be a list of words"),
        (None, {"tools": [{"name": "x", "command": "pytest -q"}]}, "'pytest -q' of 'x': must be a list of words"),
        (None, {"tools": [{"name": "x", "command": ["y", ""]}]}, "must be a list of words"),
        (None, {"tools": [{"name": "x", "command": ["y"], "timeout_seconds": 0}]}, "= 0 of 'x': must be a number"),
        (None, {"tools": [{"name": "x", "command": ["y"], "folder": 1}]}, "\"folder\" = 1 of 'x': must be text"),
        (None, {"tools": [{"name": "x", "command": ["y"], "args": 1}]}, "unknown key 'args' of a command"),
        (None, {"tools": [{}]}, "must be"),
        (None, {"tools": [{"name": "Verdict", "command": ["y"]}]}, "'Verdict' is a name of ours"),
        (None, {"tools": [{"name": "read_file", "command": ["y"]}]}, "'read_file' is a name of ours"),
        (None, {"tools": ["files", "files"]}, "'files' stands there 2 times"),
        (None, {"tools": [{"name": "x", "command": ["y"]}] * 3}, "'x' stands there 3 times"),
        ({"rubric": "a" * 50_001}, None, "has 50,001 characters, more than the 50,000"),
        ({"rubric": "@binary"}, None, "'@binary': cannot be read: 'utf-8' codec"),
        ({"rubric": "@pipe"}, None, "'@pipe': cannot be read: is no regular file"),
        ({"checks": "c" * 50_000}, None, "…: must be"),
        (None, {"model" * 9_000: "x"}, "… .known: model, tools"),
    ],
)
def test_a_mistake_is_named_on_one_line(load, agent, grader, said, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=said) as caught:
        load(agent, grader)
    assert "\n" not in str(caught.value)
    assert "langgraph.json" in str(caught.value)
