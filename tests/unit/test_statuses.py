"""The lifecycle: the table, the diagram in the docs, and what the scripts are given."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from outrider.shared import scripts
from outrider.shared.records import Task
from outrider.shared.statuses import MOVES, PHASES, TERMINAL, Phase, Status

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def edges():
    """All moves as pairs of states."""
    return {(source, target) for _, sources, targets in MOVES for source in sources for target in targets}


def name(state):
    """What the diagram calls a state: its phase, or else its status."""
    status, phase = state
    return phase or status


def drawn():
    diagram = re.search(r"```mermaid\nstateDiagram-v2\n(.*?)```", ARCHITECTURE.read_text(), re.DOTALL).group(1)
    return {(source, target, move) for source, target, move in re.findall(r"(\w+) --> (\w+): ([a-z ]+)", diagram)}


def test_the_diagram_draws_exactly_the_moves():
    table = {
        (name(source), name(target), move)
        for move, sources, targets in MOVES
        for source in sources
        for target in targets
    }
    assert drawn() == table


def test_nothing_leaves_cancelled_or_timeout_but_an_update():
    for status in (Status.CANCELLED, Status.TIMEOUT):
        moves = [move for move, sources, _ in MOVES if (status, None) in sources]
        assert moves == ["update"]


def test_every_open_state_can_be_cancelled():
    states = {(status, phase) for status in Status if status not in TERMINAL for phase in PHASES.get(status, {None})}
    assert {source for source, target in edges() if target == (Status.CANCELLED, None)} == states


def test_every_state_of_a_move_is_a_state():
    for pair in edges():
        for status, phase in pair:
            assert phase in PHASES.get(status, {None})


def test_the_scripts_know_the_same_moves():
    text = scripts.source("settle")
    found = {
        (move, *edge)
        for move, table in re.findall(r'\["([a-z ]+)"\]={([^}]*)}', text)
        for edge in re.findall(r'\["([a-z]*)/([a-z]*)>([a-z]*)/([a-z]*)"\]=true', table)
    }
    assert found == {
        (move, s, sp or "", t, tp or "") for move, sources, targets in MOVES for s, sp in sources for t, tp in targets
    }
    names = ",".join(f'"{status}"' for status in Status)
    assert f"local STATUSES = {{{names}}}" in text


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        (Status.PENDING, None),
        (Status.SUCCESS, Phase.WORKING),
        (Status.RUNNING, Phase.ASKING),
        (Status.IDLE, Phase.QUEUED),
    ],
)
def test_a_record_with_a_phase_that_its_status_cannot_have_is_refused(status, phase):
    with pytest.raises(ValidationError, match="cannot have phase"):
        Task(task_id="t", agent="a", title="a", status=status, phase=phase, created_at=1, updated_at=1)
