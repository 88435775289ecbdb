"""What all benchmarks are as commands: their options, their targets, and how a report is told."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 110  #: of tables in a pipe
NAMES = 56  #: least width of a table's first column
WORDS = {True: "[green]reached[/green]", False: "[red]not reached[/red]", None: "not measured here"}


class Options(NamedTuple):
    """What was asked for on the command line."""

    quick: bool
    json: Path | None


def options(description: str) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small numbers: shows that it works, measures little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    given = parser.parse_args()
    return Options(given.quick, given.json)


def target(name: str, value: float | None, bound: float, *, at_least: bool = False) -> dict[str, Any]:
    """A target with what was measured; `reached` is `None` where this machine does not tell."""
    reached = None if value is None else (value >= bound if at_least else value <= bound)
    shown = None if value is None else round(value, 3)
    return {"name": name, "value": shown, "bound": bound, "at_least": at_least, "reached": reached}


def tell(report: dict[str, Any], file: Path | None, *parts: RenderableType) -> None:
    """Print these parts and how the targets were met, in colour on a terminal; write the JSON where it is asked for."""
    if file:
        file.write_text(json.dumps(report, indent=2) + "\n")
    Console(width=None if Console().is_terminal else WIDTH).print(*parts, _judged(report["targets"]))


def table(title: str, *columns: str) -> Table:
    """An empty table: names on the left, figures on the right."""
    made = Table(title=title, title_justify="left", title_style="bold")
    for at, column in enumerate(columns):
        made.add_column(column, justify="right" if at else "left", min_width=0 if at else NAMES)
    return made


def about(machine: dict[str, Any]) -> str:
    """The machine in short."""
    return f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']}; Redis {machine['redis']}"


def _judged(targets: list[dict[str, Any]]) -> Table:
    judged = table("Targets", "", "measured", "target", "")
    for one in targets:
        value = "" if one["value"] is None else f"{round(one['value'], 2):g}"
        judged.add_row(one["name"], value, f"{'≥' if one['at_least'] else '≤'} {one['bound']:g}", WORDS[one["reached"]])
    return judged
