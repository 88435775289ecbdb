"""The README tells the truth: its example loads, and its tables name what there is."""

import re
from pathlib import Path

import pytest

from outrider.shared.config import Config
from outrider.shared.settings import Settings
from outrider.worker.agents import Agents

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language, containing):
    found = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return next(text for text in found if containing in text)


def test_the_example_loads_as_it_stands(tmp_path, monkeypatch):
    pytest.importorskip("langchain_openai")
    (tmp_path / "langgraph.json").write_text(block("json", "graphs"))
    (tmp_path / "agents.py").write_text(block("python", "create_agent"))
    monkeypatch.setenv("OUTRIDER_CONFIG", str(tmp_path / "langgraph.json"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    config = Config.load(tmp_path / "langgraph.json")
    published = {agent.name: agent for agent in Agents(config.agents, config.folder).warm()}
    assert set(published) == {"lead", "researcher"}
    assert {agent.broken for agent in published.values()} == {None}
    assert {agent.has_messages for agent in published.values()} == {True}


def test_a_checkout_names_the_examples_agents():
    root = Path(__file__).parents[2]
    named = Config.load(root / "langgraph.json").agents
    assert set(named) == set(Config.load(root / "examples" / "research" / "langgraph.json").agents)
    assert {agent.name: agent.broken for agent in Agents(named, root).warm()} == dict.fromkeys(named)


def test_the_settings_that_it_names_are_there():
    named = set(re.findall(r"^\| `OUTRIDER_(\w+)`", README, re.MULTILINE))
    assert "REDIS_URL" in named
    assert named <= {name.upper() for name in Settings.model_fields}


def test_every_verb_is_documented_and_no_other():
    from typer.main import get_command

    from outrider.orchestrator.cli.main import app

    documented = set(re.findall(r"^\| `outrider (\w+)", README, re.MULTILINE))
    assert documented == set(get_command(app).commands)
