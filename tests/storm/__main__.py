"""A storm on the command line: `python tests/storm [--tasks N] [--seed N] [--json FILE] [--folder FOLDER]`."""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from storm.checker import counts
from storm.ground import Plan
from storm.run import brew

SHOWN = 20  #: violations of each storm


def main():
    parser = argparse.ArgumentParser(description="Break what can be broken, and hold what was seen to the promises.")
    parser.add_argument("--tasks", type=int, default=Plan.tasks, help="how many, children among them")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--between", type=float, default=Plan.between_seconds, help="seconds between two faults")
    parser.add_argument("--threads", type=int, default=Plan.threads, help="workers on threads")
    parser.add_argument("--prefork", type=int, default=Plan.prefork, help="workers that are prefork")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--folder", type=Path, help="keep the history there")
    options = parser.parse_args()
    plan = Plan(
        seed=options.seed,
        tasks=options.tasks,
        threads=options.threads,
        prefork=options.prefork,
        between_seconds=options.between,
    )
    with tempfile.TemporaryDirectory(prefix="outrider-storm-") as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(_watched(plan, folder))
    figures = counts(report.violations)
    if options.json:
        facts = {"plan": asdict(plan), "tasks": report.tasks, "seconds": report.seconds, "faults": report.faults}
        options.json.write_text(json.dumps(facts | {"broken": figures}, indent=2) + "\n")
    _show(plan, report, figures)
    return 1 if report.violations else 0


async def _watched(plan, folder):
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("storm", total=plan.tasks)
        return await brew(plan, folder, lambda what, done: bar.update(shown, description=what, completed=done))


def _show(plan, report, figures):
    console = Console(width=None if Console().is_terminal else 110)
    console.print(f"{report.tasks:,} tasks in {report.seconds:.0f} s, seed {plan.seed}")
    table = Table(title="Faults", title_justify="left", title_style="bold", show_header=False)
    for name, times in sorted(report.faults.items()):
        table.add_row(name, f"{times:,}")
    console.print(table)
    table = Table(title="Promises", title_justify="left", title_style="bold", show_header=False)
    for promise, times in figures.items():
        table.add_row(promise, f"[green]{times}[/green]" if not times else f"[red]{times}[/red]")
    console.print(table)
    for violation in report.violations[:SHOWN]:
        console.print(f"{violation.promise}: {violation.task}: {violation.how}", style="red")


sys.exit(main())
