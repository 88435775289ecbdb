"""`outrider show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...shared.errors import BadInput
from .console import STYLES, as_text, clock, complain, console, on_terminal, print_json, print_text, run, visible
from .endings import ENDED_BADLY, answer_to, asked, grade_line
from .show_tree import counts, tree_facts, tree_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from ...shared.listings import Tree
    from ...shared.records import Delivery, Run, Task
    from ..files import Files

EPILOG = """\b
Examples:
  outrider show 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10
  outrider show 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 --result > answer.md
  outrider show 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 --transcript | less"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("show", short_help="Show a task: runs, questions, result, and what is below it.", epilog=EPILOG)(show)


def show(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    transcript: Annotated[bool, typer.Option("--transcript", help="Also its conversation.")] = False,
    result: Annotated[bool, typer.Option("--result", help="Only the result, whole.")] = False,
    files: Annotated[bool, typer.Option("--files", help="Also the files that it shares with its tree.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON: the task, with --transcript its messages, with --files its files."),
    ] = False,
) -> int:
    """Show a task, its runs and its result. Also what it asks, and what became of the tasks that it started."""
    if result and (transcript or files):
        raise BadInput("--result prints the result alone: leave out --transcript and --files")
    task, tree, messages, listed = run(_read(task_id, with_messages=transcript, with_files=files))
    if result:
        return _print_result(task, as_json=as_json)
    if as_json:
        more: dict[str, Any] = {"tree": tree_json(tree)}
        more |= {"messages": _as_dicts(messages)} if transcript else {}
        more |= {"files": [file.to_json() for file in listed.files], "more_files": listed.more} if files else {}
        print_json(task.to_json() | more)
        return 0
    _print_facts(task, tree)
    if files:
        _print_files(listed)
    if transcript:
        from .transcript import print_transcript

        print_transcript(messages)
    elif task.result is not None:
        print()
        print_text(as_text(task.result))
    return 0


async def _read(
    task_id: str, *, with_messages: bool, with_files: bool
) -> tuple[Task, Tree, Sequence[BaseMessage], Files]:
    from ..client import Outrider
    from ..files import Files

    async with Outrider() as outrider:
        task, tree = await outrider.get(task_id), await outrider.tree(task_id)
        messages = (await outrider.state(task_id)).get("messages", []) if with_messages else []
        files = await outrider.files(task_id) if with_files else Files()
    return task, tree, messages, files


def _print_files(listed: Files) -> None:
    for file in listed.files:
        print(f"file\t{visible(file.path)}\t{file.bytes}\t{clock(file.updated_at)}")
    if listed.more:
        complain(f"only the first {len(listed.files)} files are shown")
    elif not listed.files:
        complain("its tree has no files")


def _print_result(task: Task, *, as_json: bool) -> int:
    if as_json:
        print_json(task.result)
    elif task.result is not None:
        print_text(as_text(task.result))
    if task.result is None:
        complain(f"task {task.task_id} has no result: it is {task.status}")
        return ENDED_BADLY
    return 0


def _as_dicts(messages: Sequence[BaseMessage]) -> Any:
    from langchain_core.messages import messages_to_dict

    from ...shared.text import plain

    return plain(messages_to_dict(messages))


def _facts(task: Task) -> list[tuple[str, str]]:
    """What is known of a task, by name; what does not apply is left out."""
    limits = ", ".join(f"{name} {value:g}" for name, value in task.limits if value is not None)
    usage = task.usage
    facts = {
        "task": task.task_id,
        "agent": task.agent,
        "title": task.title if task.title != task.agent else "",
        "status": f"{task.status}/{task.phase}" if task.phase else task.status.value,
        "waits": _waits(task),
        "attempt": f"{task.attempt}" if task.attempt else "",
        "follow-ups": f"{task.follow_ups} wait for their turn" if task.follow_ups else "",
        "parent": task.parent_id or "",
        "created": clock(task.created_at),
        "updated": clock(task.updated_at),
        "answer by": clock(task.answer_until) if task.interrupts and task.answer_until else "",
        "stopped": clock(task.stopped_at) if task.stopped_at else "",
        "limits": limits,
        "usage": counts(usage),
        "graders": counts(usage.grader) if usage.grader else "",
        "webhook": task.to_json()["webhook"] or "",
        "metadata": ", ".join(f"{key}={as_text(value)}" for key, value in task.metadata.items()),
        "error": f"{task.error.type}: {task.error.message}" if task.error else "",
        "rubric": task.rubric.text if task.rubric else "",
    }
    rows = [(name, text) for name, text in facts.items() if text]
    for question in task.interrupts:
        rows += [("question", f"{question.id}: {asked(question)}"), ("answer", answer_to(task, question))]
    return rows


def _waits(task: Task) -> str:
    last = task.runs[-1] if task.runs else None
    if last and last.not_before and last.error:
        return f"until {clock(last.not_before)} for its next attempt, after {last.error.type}: {last.error.message}"
    return f"for a {task.waits_for}: its agent has as many runs at work as it may" if task.waits_for == "slot" else ""


def _run_facts(run: Run) -> str:
    """A run in one line; what is not known yet is left out."""
    times = [f"{word} {clock(moment)}" for word, moment in (("from", run.started_at), ("to", run.ended_at)) if moment]
    parts = [
        run.run_id,
        f"{run.kind} {run.status}" + (f" ({run.ended_as})" if run.ended_as else ""),
        f"attempt {run.attempt}",
        f"queue {run.queue}",
        f"worker {run.worker}" if run.worker else "",
        " ".join(times),
    ]
    return ", ".join(filter(None, parts))


def _delivery(delivery: Delivery) -> str:
    after = f" after {delivery.tries} {'try' if delivery.tries == 1 else 'tries'}"
    why = f": {delivery.error}" if delivery.error else ""
    again = f", again at {clock(delivery.next_at)}" if delivery.next_at else ""
    return f"{delivery.status}{after}{why}{again}"


def _print_facts(task: Task, tree: Tree) -> None:
    runs = task.runs or ()
    rows = [*_facts(task), *tree_facts(tree), *(("run", _run_facts(run)) for run in runs)]
    rows += [("grade", f"{run.grade.iteration}: {grade_line(run.grade)}") for run in runs if run.grade]
    rows += [("delivery", _delivery(run.delivery)) for run in runs if run.delivery]
    if not on_terminal():
        for name, text in rows:
            print(f"{name}\t{visible(' '.join(text.split()))}")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        style = STYLES.get(task.status, "") if name == "status" else "red" if name == "error" else ""
        table.add_row(name, Text(visible(text), style))
    console().print(table)
