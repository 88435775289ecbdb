"""`outrider cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...shared.errors import UnknownTask
from ...shared.ids import check_id
from .console import complain, print_json, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...shared.transitions import CancelReply

EPILOG = """\b
Examples:
  outrider cancel 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10
  outrider list --status pending --json | jq -r '.tasks[].task_id' | xargs outrider cancel --json"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("cancel", short_help="End tasks and all that they started.", epilog=EPILOG)(cancel)


def cancel(
    task_ids: Annotated[list[str], typer.Argument(metavar="ID", help="The tasks to end.")],
    keep_children: Annotated[
        bool, typer.Option("--keep-children", help="Let the tasks that they started go on.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: [{task_id, outcome, status, follow_ups}].")
    ] = False,
) -> int:
    """End tasks now, with all tasks that they started. One that had ended keeps its status, which is printed."""
    for task_id in task_ids:
        check_id(task_id)
    answers, unknown = run(_cancel(task_ids, keep_children=keep_children))
    for error in unknown:
        complain(str(error))
    if as_json:
        print_json([_json(one) for one in answers])
    else:
        for one in answers:
            print(f"{one.task_id}\t{one.outcome}\t{one.status}")
            if one.follow_ups:
                complain(f"task {one.task_id}: dropped with it, messages that waited for their turn: {one.follow_ups}")
    return 2 if unknown else 0


def _json(answer: CancelReply) -> dict[str, Any]:
    return {
        "task_id": answer.task_id,
        "outcome": answer.outcome,
        "status": answer.status.value,
        "follow_ups": answer.follow_ups,
    }


async def _cancel(task_ids: Sequence[str], *, keep_children: bool) -> tuple[list[CancelReply], list[UnknownTask]]:
    from ..client import Outrider

    answers, unknown = [], []
    async with Outrider() as outrider:
        for task_id in task_ids:
            try:
                answers.append(await outrider.cancel(task_id, keep_children=keep_children))
            except UnknownTask as error:
                unknown.append(error)
    return answers, unknown
