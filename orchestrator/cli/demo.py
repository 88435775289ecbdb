"""`outrider demo`: the research example, on a Redis and two workers of its own."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...shared.errors import BadInput
from ...shared.text import one_line
from .console import complain, print_json, run, visible, working
from .endings import ENDED_BADLY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...shared.records import Task
    from .demo_approver import Approver
    from .demo_board import Board, Row
    from .demo_stage import Stage

EPILOG = """\b
Examples:
  outrider demo --yes
  outrider demo --docs ./handbook --question "How are releases made?"
  outrider demo --model openai:gpt-5-mini --json"""

AGENT = "lead"
ASKED = 3  #: of the questions about the project itself
WORKERS, CONCURRENCY = 2, 4
ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  #: what was started is ended first
TASK_SECONDS = 300  #: working time of one question's lead


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("demo", short_help="Ask questions about documents, with a lead and analysts.", epilog=EPILOG)(demo)


def demo(
    docs: Annotated[
        str | None, typer.Option(metavar="DIR", help="A folder of .md, .txt, .rst and .py files to ask about.")
    ] = None,
    question: Annotated[str | None, typer.Option(metavar="TEXT", help="Ask only this question.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER:MODEL", help="Use this model; without it, an offline one that quotes sentences."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve the searches that the leads plan.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: {task_id, report, citations, tasks, wakes}.")
    ] = False,
) -> int:
    """Watch agents answer questions on documents.

    For each question a lead plans searches, which you approve, and hands what they find to analysts on any worker. It
    rests until they have reported, is woken, and writes a report with citations. Every quote is looked up before the
    report counts as done; with --model a grader reads it too. The demo starts a Redis (unless the environment names
    one) and two workers, and stops them at the end. Without --docs it asks about this project's own documents.
    """
    from ...examples.research.folder import FolderError, open_folder
    from ...examples.research.policy import NOT_ANSWERED
    from .demo_answers import as_json as answers_as_json
    from .demo_answers import judge, print_answers, read_answers

    if question is not None and not question.strip():
        raise BadInput("--question is empty: ask something")
    try:
        folder = open_folder(docs)
    except FolderError as error:
        raise BadInput(str(error)) from None
    if not folder.listing().documents:
        raise BadInput(f"--docs {folder.root} has no .md, .txt, .rst or .py file: give another folder")
    if question is None and not folder.within:
        raise BadInput(f"what to ask about {folder.root}? Give a --question: the demo's own are about outrider")
    if model:
        _check_model(model)
    configurable: dict[str, Any] = {"reviewed": True}
    configurable |= {"docs": str(folder.root)} if docs else {}
    configurable |= {"model": model} if model else {}
    questions, trees = run(_ask(question, configurable, yes=yes, quiet=as_json), ended_by=ENDED_BY)
    answers = read_answers(questions, trees, folder)
    if as_json:
        print_json(answers_as_json(answers))
    else:
        print_answers(answers)
    if not model and any(answer.text == NOT_ANSWERED for answer in answers):
        complain("the offline model looks for the question's words alone: --model PROVIDER:MODEL understands it")
    return judge(answers)


def _check_model(name: str) -> None:
    """Check that the model can be made, credentials and all, before anything starts."""
    from ...examples.research.agents import chat_model

    try:
        chat_model(name)
    except Exception as error:  # noqa: BLE001 each provider has its own
        raise BadInput(f"--model {name}: {one_line(str(error), 300)}") from None


async def _ask(
    question: str | None, configurable: dict[str, Any], *, yes: bool, quiet: bool
) -> tuple[Sequence[str], list[list[Task]]]:
    """Submit the questions, show their trees until all have ended; the tasks of each of them, its lead first."""
    from contextlib import AsyncExitStack
    from pathlib import Path

    from ...examples import research
    from ...examples.research.questions import QUESTIONS
    from .demo_approver import Approver
    from .demo_board import Board
    from .demo_stage import Stage

    async with AsyncExitStack() as stack:
        with working("starting Redis and two workers", quiet=quiet):
            config = Path(research.__file__).with_name("langgraph.json")
            stage = await stack.enter_async_context(Stage(config, workers=WORKERS, concurrency=CONCURRENCY))

        questions = [question] if question else QUESTIONS[:ASKED]
        board = Board(AGENT, questions, quiet=quiet)
        with board.showing():
            trees = await _all(stage, board, configurable, Approver(stage.outrider, board, at_once=yes))
        if any(task.status != "success" for tree in trees for task in tree):
            _tell_log(stage)
    return questions, trees


async def _all(stage: Stage, board: Board, configurable: dict[str, Any], approver: Approver) -> list[list[Task]]:
    import asyncio

    from ...examples.research.grading import RUBRIC
    from .follow_tree import follow_trees, whole

    outrider = stage.outrider
    limits = {"timeout_seconds": TASK_SECONDS}
    # The agent's checks come with it; what they cannot judge takes a model.
    model = configurable.get("model")
    rubric = {"text": RUBRIC, "model": model} if model else None
    rows: dict[str, Row] = {}
    for row in board.rows:
        asked = await outrider.submit(
            AGENT, row.title, title=row.title, configurable=configurable, limits=limits, rubric=rubric
        )
        rows[asked.task_id] = row
    following = asyncio.create_task(follow_trees(outrider, rows, board, approver))
    ending = asyncio.create_task(stage.worker_ended())
    try:
        await asyncio.wait((following, ending), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
            return [await whole(outrider, task_id) for task_id in rows]
        _tell_log(stage)
        complain(f"a worker of the demo ended by itself, with exit code {ending.result()}")
        raise typer.Exit(ENDED_BADLY)
    finally:
        following.cancel()
        ending.cancel()
        await asyncio.gather(following, ending, return_exceptions=True)


def _tell_log(stage: Stage) -> None:
    complain("the log of the demo's workers ends with:")
    for text in stage.log():
        print(f"  {visible(text)}", file=sys.stderr)
