"""docs/operations.md is held against the code: every setting with its default, every event that is logged."""

import ast
import re
from pathlib import Path

import pytest

from outrider.shared.settings import Settings

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
# What a log line must not hold: the words of a task, of its answer, of its error.
PRIVATE = {"text", "description", "input", "result", "message", "title", "state", "content", "answer"}


def rows(heading):
    """The cells of a section's table."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)[1]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def logged():
    """Every event of the sources: its level, and the fields that it may have. A traceback is none, but goes with it."""
    events = {}
    for room in ("shared", "worker", "orchestrator"):
        for file in (ROOT / room).rglob("*.py"):
            for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                    continue
                if ast.unparse(call.func.value) in {"log", "logger"}:
                    where = f"{file.relative_to(ROOT)}:{call.lineno}"
                    assert isinstance(call.args[0], ast.Constant), f"{where}: an event has a fixed name"
                    level, fields = events.setdefault(call.args[0].value, (LEVELS[call.func.attr], set()))
                    assert level == LEVELS[call.func.attr], f"{where}: one event, one level"
                    fields.update({word.arg for word in call.keywords} - {"exc_info"})
    return events


def test_every_setting_stands_there_with_its_default():
    told = {name.strip("`"): default for name, default, _ in rows("Settings")}
    assert set(told) == {f"OUTRIDER_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if field.default_factory is None and field.default:
            assert told[f"OUTRIDER_{name.upper()}"] == f"`{field.default}`"


def test_every_event_stands_there_with_its_level_and_fields():
    told = {cells[0].strip("`"): (cells[1], set(re.findall(r"`(\w+)`", cells[2]))) for cells in rows("Logs")}
    assert told == logged()


def test_no_event_holds_the_words_of_a_task():
    assert not [name for name, (_, fields) in logged().items() if PRIVATE & fields]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z]+\.[a-z_]+)`", str(rows("What to alert on"))))))
def test_what_one_is_to_alert_on_exists(name):
    assert name in logged()
