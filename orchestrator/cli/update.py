"""`outrider update`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...shared.ids import check_id
from ...shared.statuses import Strategy  # noqa: TC001 typer reads it
from . import options
from .console import as_text, complain
from .wait_or_follow import Way, hand_over

if TYPE_CHECKING:
    from ..updating import Updated

EPILOG = """\b
Examples:
  outrider update 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 "And in the release before?" --wait
  outrider update 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 "Only the last year" --strategy interrupt
  cat more.md | outrider update 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 - --strategy enqueue --follow
  outrider update 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 "Look again" --state '{"skills_metadata": null}'"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("update", short_help="Give a task one more message.", epilog=EPILOG)(update)


def update(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message; - reads it from stdin.")],
    strategy: Annotated[
        Strategy | None, typer.Option(help="What to do with an active run; without this the update is refused.")
    ] = None,
    state: options.State = None,
    rubric: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="What its work must meet from now on.")
    ] = None,
    wait: options.Wait = False,
    wait_timeout: options.WaitTimeout = None,
    follow: options.Follow = False,
    as_json: options.AsJson = False,
) -> int:
    """Give a task one more message; it goes on with its conversation. Prints the id of the run that this starts.

    With --json: {task_id, run_id, status, overtaken, dropped, event_id, notes}, with --wait also the whole task,
    with --follow its events from here on as JSON lines.
    """
    check_id(task_id)
    way = Way.chosen(wait=wait, wait_timeout=wait_timeout, follow=follow, as_json=as_json)
    from ..client import Outrider

    client = Outrider()
    bound = client.settings.max_input_bytes
    message, more = options.text_or_stdin(text, bound), options.json_option("--state", state, bound)
    judged_by = options.text_or_file("--rubric", rubric, bound)
    return hand_over(
        client,
        lambda outrider: outrider.update(task_id, message, strategy=strategy, state=more, rubric=judged_by),
        _tell,
        way,
    )


def _tell(updated: Updated, *, quiet: bool) -> None:
    """Print the run's id at once; what was stopped or dropped for it goes to stderr."""
    if not quiet and updated.run_id:
        print(updated.run_id, flush=True)
    if updated.run_id is None:
        complain(f"task {updated.task_id} is {updated.status}: the message waits for its turn")
    if updated.overtaken:
        complain(f"run {updated.overtaken} was stopped")
    for question in updated.dropped:
        complain(f"question {question.id} was dropped: {as_text(question.value)}")
    for note in updated.notes:
        complain(note)
