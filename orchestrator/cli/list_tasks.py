"""`outrider list`."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ...shared.statuses import Status
from .console import STYLES, clock, complain, console, on_terminal, print_json, run, visible

if TYPE_CHECKING:
    from ...shared.listings import Page
    from ...shared.records import Task

TABLE_WIDTH = 80  #: columns of a terminal; on a narrower one a table would cut the ids

EPILOG = """\b
Examples:
  outrider list --status running --status waiting
  outrider list --agent researcher --limit 10 --json
  outrider list --parent 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("list", short_help="List tasks, newest first.", epilog=EPILOG)(tasks)


def tasks(
    status: Annotated[
        list[Status] | None,
        typer.Option("--status", metavar="STATUS", help=f"Only this status, repeatable: {', '.join(Status)}."),
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only tasks of this agent.")] = None,
    parent: Annotated[str | None, typer.Option("--parent", metavar="ID", help="Only children of this task.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="How many at most, 0 to 1000.")] = 50,
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only tasks older than this one: the next page.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: {tasks, more, next}.")] = False,
) -> int:
    """List tasks, newest first."""
    page = run(_page(status or [], agent, parent, limit, before))
    if as_json:
        print_json(page.to_json())
        return 0
    if on_terminal() and page.tasks and console().width >= TABLE_WIDTH:
        _print_table(page)
    else:
        for task in page.tasks:
            print("\t".join((task.task_id, _status(task), task.agent, clock(task.created_at), visible(task.title))))
    filters = _options({"--status": status, "--agent": agent, "--parent": parent})
    if page.more:
        again = shlex.join(["outrider", "list", *filters, *_options({"--limit": limit, "--before": page.next})])
        complain(f"there are more: {again}" if page.next else "there are tasks, and --limit 0 shows none of them")
    elif not page.tasks:
        complain("no task matches" if filters or before else "no tasks yet: outrider submit AGENT TEXT")
    return 0


def _options(values: dict[str, object]) -> list[str]:
    """Options as words of a command line; those that were not given are left out."""
    words: list[str] = []
    for option, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            words += [] if one is None else [option, str(one)]
    return words


async def _page(status: list[Status], agent: str | None, parent: str | None, limit: int, before: str | None) -> Page:
    from ..client import Outrider

    async with Outrider() as outrider:
        return await outrider.list(status=status, agent=agent, parent=parent, limit=limit, before=before)


def _status(task: Task) -> str:
    waits = f" ({task.waits_for})" if task.waits_for else ""
    return f"{task.status}/{task.phase}{waits}" if task.phase else task.status.value


def age(seconds: float) -> str:
    """How long ago, in the largest unit that is full: a table of an 80 columns' terminal has no room for a date."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(int(seconds), 0)} s"


def _print_table(page: Page) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("task", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("age", no_wrap=True, justify="right")
    table.add_column("agent · title", overflow="ellipsis", no_wrap=True)
    now = datetime.now(UTC)
    for task in page.tasks:
        name = task.agent if task.title == task.agent else f"{task.agent} · {visible(task.title)}"
        status = Text(_status(task), STYLES.get(task.status, ""))
        table.add_row(task.task_id, status, age((now - task.created_at).total_seconds()), Text(name))
    console().print(table)
