"""`outrider follow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...shared.ids import check_id

if TYPE_CHECKING:
    from ..client import Outrider

EPILOG = """\b
Examples:
  outrider follow 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10
  outrider follow 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 --json | jq -r .type"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("follow", short_help="Watch a task until it has ended.", epilog=EPILOG)(follow)


def follow(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print its events as JSON lines.")] = False,
) -> int:
    """Watch a task until it has ended. Shows steps, tools, progress and status. Ctrl-C detaches; the task goes on."""
    from ..client import Outrider
    from .watching import watch

    check_id(task_id)

    async def begin(_outrider: Outrider) -> tuple[str, str]:
        return task_id, "0"

    return watch(Outrider(), begin, as_json=as_json)
