"""What the demo shows of trees of tasks, and what it makes of them."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from outrider.examples.research.folder import open_folder
from outrider.orchestrator.cli import demo_board
from outrider.orchestrator.cli.demo_answers import as_json, judge, print_answers, read_answers
from outrider.orchestrator.cli.demo_approver import Approver
from outrider.orchestrator.cli.demo_board import Board
from outrider.orchestrator.cli.follow_tree import Below, follow_trees, whole
from outrider.orchestrator.cli.watching import Lines
from outrider.orchestrator.cli.wording import line_below
from outrider.shared.errors import AnswerConflict, UnknownTask
from outrider.shared.listings import Page, Tree
from outrider.shared.records import Event, Fault, Interrupt, Run, Task
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def event(kind, **data):
    return Event(id="1-0", type=kind, at=NOW, data=data)


def task(task_id, agent, status=Status.SUCCESS, runs=1, *, result=None, paused=0, **more):
    about = {"task_id": task_id, "status": RunStatus.SUCCESS, "created_at": NOW}
    how = [EndedAs.PAUSED] * paused + [EndedAs.FINISHED] * (runs - paused)
    ended = [Run(run_id=f"{task_id}-{number}", queue="q", ended_as=one, **about) for number, one in enumerate(how)]
    return Task(
        task_id=task_id, agent=agent, title=agent, status=status, created_at=NOW, updated_at=NOW,
        result=result, runs=tuple(ended), **more,
    )  # fmt: skip


@pytest.fixture
def terminal(monkeypatch):
    """Pretend to be on a terminal of this many lines; give what the board draws."""

    def draw(board, height):
        screen = Console(width=100, height=height, force_terminal=False, color_system=None)
        monkeypatch.setattr(demo_board, "console", lambda: screen)
        with screen.capture() as drawn:
            screen.print(board._table())
        return drawn.get().splitlines()

    return draw


@pytest.fixture
def board():
    made = Board("lead", ["Who?", "Why?"], quiet=False)
    for row in made.rows:
        for _ in range(3):
            made.child(row, "analyst", "analyst")
    return made


def test_plain_lines_tell_whose_they_are_and_leave_small_steps_out(board, capsys):
    lead, analyst = board.rows[1], board.rows[1].children[2]
    for kind, data in (
        ("run.claimed", {"worker": "here:1"}),
        ("step", {"node": "model"}),
        ("tokens", {"text": "Hm", "message_id": "m"}),
        ("tool.started", {"name": "find_chunks", "args": "x" * 500}),
        ("tool.ended", {"name": "find_chunks", "ok": True}),
        ("inbox.arrived", {"task_id": "t"}),
        ("task.resting", {}),
    ):
        board.event(lead, event(kind, **data))
    board.event(analyst, event("task.settled", status="success"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2     lead     running   on here:1"
    assert lines[1].startswith("2     lead     tool      find_chunks xxx")
    assert len(lines[1]) < 160
    assert lines[1].endswith("…")
    assert lines[2].startswith("2     lead     resting ")
    assert lines[3:] == ["2.3   analyst  success"]
    assert (lead.status, analyst.status) == ("resting", "success")


def test_beside_json_nothing_is_said(capsys):
    board = Board("lead", ["Who?"], quiet=True)
    board.event(board.rows[0], event("run.claimed", worker="here:1"))
    assert capsys.readouterr().out == ""


def test_the_table_is_a_tree_and_folds_what_has_ended_where_it_does_not_fit(board, terminal):
    assert [line.split()[0] for line in terminal(board, 40)[1:]] == ["1", "1.1", "1.2", "1.3", "2", "2.1", "2.2", "2.3"]
    board.event(board.rows[0], event("task.settled", status="success"))
    assert [line.split()[0] for line in terminal(board, 10)[1:]] == ["1", "2", "2.1", "2.2", "2.3"]


def test_a_task_s_time_stands_still_once_it_has_ended(board):
    row = board.rows[0]
    assert row.spent is None
    board.event(row, event("run.claimed", worker="here:1"))
    board.event(row, event("task.resting"))
    assert row.seconds is None, "a lead at rest has not ended"
    board.event(row, event("task.settled", status="success"))
    assert row.spent == row.spent == row.seconds


class Told:
    """Tasks whose events are known: `children` of each, as it starts them."""

    def __init__(self, children, goes_on=()):
        self.children, self.goes_on = children, goes_on
        self.tasks = {}

    async def follow(self, task_id):
        yield event("task.submitted", title=task_id)
        yield event("tool.ended", name="start_async_task", ok=True)
        if task_id in self.goes_on:
            yield event("progress", fraction=0.5)
            await asyncio.Event().wait()
        yield event("task.settled", status="success")

    async def list(self, *, parent, limit):
        names = self.children.get(parent, ())[:limit]
        return Page(tasks=tuple(task(name, "analyst") for name in reversed(names)), more=False)

    async def tree(self, task_id):
        below = [await self.tree(child) for child in self.children.get(task_id, ())]
        return Tree(task=task(task_id, "any"), children=tuple(below))

    async def get(self, task_id):
        open_run = {"run_id": "r", "status": Status.RUNNING, "phase": Phase.WORKING} if task_id in self.goes_on else {}
        return task(task_id, "any", result=f"of {task_id}", **open_run)


async def test_every_task_of_a_tree_is_followed_once_however_deep(capsys):
    told = Told({"root": ("a", "b"), "b": ("c",)})
    board = Board("lead", ["Who?"], quiet=False)
    await follow_trees(told, {"root": board.rows[0]}, board, Approver(told, board, at_once=True))
    row = board.rows[0]
    assert [one.number for one in row.children] == ["1.1", "1.2"]
    assert [one.number for one in row.children[1].children] == ["1.2.1"]
    assert {one.status for one in (row, *row.children, *row.children[1].children)} == {"success"}
    assert [one.task_id for one in await whole(told, "root")] == ["root", "a", "b", "c"]
    assert [one.result for one in await whole(told, "b")] == ["of b", "of c"]


async def test_who_watches_a_task_is_told_how_far_those_below_it_are(capsys):
    told = Told({"root": ("a", "b"), "b": ("c",)}, goes_on=("b",))
    lines, deepest = Lines(), asyncio.Event()

    def began(_parent_id, child):
        if child.task_id == "c":
            deepest.set()

        async def show(one):
            lines.below(child, one)

        return show

    async with Below(told, began) as below:
        async for one in told.follow("root"):
            await below.heard("root", one)
        await deepest.wait()
        await below.caught_up()
    said = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(said) == [
        "analyst a: pending a",
        "analyst a: success",
        "analyst b: pending b",
        "analyst b: progress 50%",
        "analyst c: pending c",
        "analyst c: success",
    ]


def test_the_first_line_of_a_task_below_has_its_whole_id():
    child = task("0b6f2c1e-6f7e", "analyst")
    assert line_below(child, event("task.submitted", title="Read it")) == "analyst 0b6f2c1e-6f7e: pending Read it"
    assert line_below(child, event("run.claimed", worker="w")) is None
    assert line_below(child, event("task.settled", status="success")) == "analyst 0b6f2c1e: success"


async def test_what_goes_wrong_while_a_tree_is_followed_ends_the_following():
    class Gone(Told):
        async def list(self, **asked):
            raise UnknownTask(asked["parent"])

    board = Board("lead", ["Who?"], quiet=True)
    with pytest.raises(UnknownTask, match="root"):
        await follow_trees(Gone({}), {"root": board.rows[0]}, board, Approver(None, board, at_once=True))


async def test_what_a_task_asks_is_approved_unless_somebody_answered_first():
    review = {"action_requests": [{"name": "find_chunks", "args": {"query": "release"}}]}
    given = []

    class Asks(Told):
        async def follow(self, task_id):
            yield event("task.waiting", status="waiting")
            assert given == [("root", {"decisions": [{"type": "approve"}]}, "q1")]
            yield event("task.settled", status="success")

        async def get(self, task_id):
            questions = tuple(Interrupt(id=name, value=review) for name in ("q0", "q1"))
            return task(task_id, "any", Status.WAITING, phase="asking", interrupts=questions)

        async def answer(self, task_id, value, *, interrupt):
            if interrupt == "q0":
                raise AnswerConflict(task_id, interrupt, ())
            given.append((task_id, value, interrupt))

    board = Board("lead", ["Who?"], quiet=True)
    asks = Asks({})
    await follow_trees(asks, {"root": board.rows[0]}, board, Approver(asks, board, at_once=True))
    assert board.rows[0].status == "success"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.md").write_text("The heron is silent.\n")
    return open_folder(str(tmp_path))


STANDS = '- It is silent. [a.md:1] "The heron is silent."'


def test_the_json_holds_all_tasks_and_counts_wakes(folder):
    trees = [
        [
            task("one", "lead", paused=1, runs=4, result=f"{STANDS}\n(1 of 2 analysts did not finish: …)"),
            task("x", "analyst"),
        ],
        [task("two", "lead", result="The documents do not answer this question."), task("y", "analyst", runs=2)],
    ]
    shown = json.loads(json.dumps(as_json(read_answers(["Who?", "Why?"], trees, folder))))
    assert (shown["task_id"], shown["wakes"]) == ("one", 2)
    assert [one["task_id"] for one in shown["tasks"]] == ["one", "x", "two", "y"]
    assert shown["citations"] == [{"file": "a.md", "line": "1", "quote": "The heron is silent."}]
    assert shown["report"].startswith(f"## Who?\n\n{STANDS}\n(1 of 2")


def test_the_exit_code_follows_the_leads_and_the_citations(folder, capsys):
    failed = {"status": Status.ERROR, "error": Fault(type="ValueError", message="no luck")}
    fine, beside = task("one", "lead", result=STANDS), task("x", "analyst", **failed)
    assert judge(read_answers(["Who?"], [[fine, beside]], folder)) == 0
    assert "task x ended as error: ValueError: no luck" in capsys.readouterr().err
    assert judge(read_answers(["Who?"], [[task("one", "lead", **failed)]], folder)) == 1
    assert (
        judge(read_answers(["Who?"], [[task("one", "lead", result=STANDS.replace("silent.", "loud."))]], folder)) == 1
    )
    assert "is not verified" in capsys.readouterr().err


def test_a_terminal_shows_claims_and_what_is_said_beside_them(folder, capsys, monkeypatch):
    monkeypatch.setattr("outrider.orchestrator.cli.demo_answers.on_terminal", lambda: True)
    print_answers(read_answers(["Who?"], [[task("one", "lead", result=f"{STANDS}\n(1 line left out)")]], folder))
    shown = capsys.readouterr().out
    assert "✓ It is silent.  a.md:1" in shown
    assert "(1 line left out)" in shown
    assert shown.rstrip().endswith("1 citation; the quotes of 1 stand in the documents word for word.")
