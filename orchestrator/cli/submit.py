"""`outrider submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import complain
from .wait_or_follow import Way, hand_over

if TYPE_CHECKING:
    from ..submitting import Submitted

EPILOG = """\b
Examples:
  outrider submit researcher "What changed in the last release?" --wait
  outrider submit researcher "Summarise this" --timeout 30m --max-turns 20 --state @files.json
  cat brief.md | outrider submit researcher - --follow
  outrider submit researcher "Nightly report" --idempotency-key report-2026-03-01 --metadata team=docs --json"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("submit", short_help="Hand a task to an agent.", epilog=EPILOG)(submit)


def submit(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name in langgraph.json.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What it should do; - reads it from stdin.")],
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Most working time (waiting is not counted): 90s, 30m, 1h30m."),
    ] = None,
    max_turns: Annotated[int | None, typer.Option(metavar="N", help="Most model calls it may make.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Most input and output tokens it may use.")
    ] = None,
    max_output_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Most tokens that its models may write.")
    ] = None,
    idle: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Stop it when it works and nothing comes from it for so long."),
    ] = None,
    max_children: Annotated[
        int | None, typer.Option(metavar="N", help="Most tasks it may start; a fork may start none unless given.")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="What people see in lists and in Flower.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="A label; may be given several times.")
    ] = None,
    state: options.State = None,
    context: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="The context of its runs, as a JSON object.")
    ] = None,
    rubric: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="What its work must meet before it counts as done.")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="The queue that its runs go to.")] = None,
    parent: Annotated[str | None, typer.Option(metavar="ID", help="The task to tell how this one ends.")] = None,
    fork: Annotated[bool, typer.Option("--fork", help="Begin with the parent's conversation.")] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Submitting again with the same key returns the same task.")
    ] = None,
    answer_within: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long its questions wait for an answer: 30m, 1h.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Tell this URL of its end, by a signed POST.")
    ] = None,
    wait: options.Wait = False,
    wait_timeout: options.WaitTimeout = None,
    follow: options.Follow = False,
    as_json: options.AsJson = False,
) -> int:
    """Hand a task to an agent; print the task's id.

    With --json: {task_id, run_id, status, created, notes}, with --wait also the whole task, with --follow its
    events as JSON lines.
    """
    way = Way.chosen(wait=wait, wait_timeout=wait_timeout, follow=follow, as_json=as_json)
    limits = {
        "timeout_seconds": options.seconds("--timeout", timeout),
        "max_turns": max_turns,
        "max_tokens": max_tokens,
        "max_output_tokens": max_output_tokens,
        "idle_seconds": options.seconds("--idle", idle),
        "max_children": max_children,
    }
    from ..client import Outrider
    from ..submit_request import FORK, ISOLATED

    client = Outrider()
    bound = client.settings.max_input_bytes
    arguments: dict[str, Any] = {
        "agent": agent,
        "text": options.text_or_stdin(text, bound),
        "limits": {name: value for name, value in limits.items() if value is not None},
        "title": title,
        "metadata": options.pairs("--metadata", metadata),
        "state": options.json_option("--state", state, bound),
        "context": options.json_option("--context", context, bound),
        "rubric": options.text_or_file("--rubric", rubric, bound),
        "queue": queue,
        "parent": parent,
        "mode": FORK if fork else ISOLATED,
        "idempotency_key": idempotency_key,
        "webhook": webhook,
        "answer_within": options.seconds("--answer-within", answer_within),
    }
    return hand_over(client, lambda outrider: outrider.submit(**arguments), _tell, way)


def _tell(submitted: Submitted, *, quiet: bool) -> None:
    """Print the id at once, so that it is known whatever happens; notes go to stderr."""
    if not quiet:
        print(submitted.task_id, flush=True)
    for note in submitted.notes:
        complain(note)
    if not submitted.created:
        complain(f"task {submitted.task_id} was submitted before with this idempotency key")
