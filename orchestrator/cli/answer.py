"""`outrider answer`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...shared.errors import AnswerConflict, BadInput, NotWaiting, SeveralQuestions
from ...shared.ids import check_id
from ...shared.statuses import Status
from . import options
from .console import complain
from .wait_or_follow import Way, hand_over

if TYPE_CHECKING:
    from ...shared.records import Interrupt
    from ..answering import Answered
    from ..client import Outrider

EPILOG = """\b
Examples:
  outrider answer 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 yes
  outrider answer 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 '{"budget": 200}' --wait
  outrider answer 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 --approve
  outrider answer 0b6f2c1e-6f7e-4b52-9f3a-6d2a2a7a9d10 --reject "not on a Friday" --follow"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("answer", short_help="Answer what a task asks a person.", epilog=EPILOG)(answer)


def answer(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task that asks.")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE", help="JSON if it parses, else text; - reads it from stdin."),
    ] = None,
    interrupt: Annotated[
        str | None, typer.Option(metavar="ID", help="Which question, if the task asks several.")
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Approve all tool calls that the question lists.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Reject them; VALUE can tell the agent why.")] = False,
    wait: options.Wait = False,
    wait_timeout: options.WaitTimeout = None,
    follow: options.Follow = False,
    as_json: options.AsJson = False,
) -> int:
    """Answer a question of a task. Prints the id of the run that goes on, once no question is left.

    --approve and --reject answer LangChain's requests to review tool calls. To edit a call, give a VALUE. With --json:
    {task_id, interrupt, open, run_id, status, event_id, notes}, with --wait also the whole task, with --follow its
    events from here on as JSON lines.
    """
    check_id(task_id)
    if approve and (reject or value is not None):
        raise BadInput("--approve is the whole answer: leave out --reject and VALUE")
    if value is None and not (approve or reject):
        raise BadInput("the answer is missing: give a VALUE, --approve or --reject")
    way = Way.chosen(wait=wait, wait_timeout=wait_timeout, follow=follow, as_json=as_json)
    from ..client import Outrider

    client = Outrider()
    text = None if value is None else options.text_or_stdin(value, client.settings.max_input_bytes)

    async def give(outrider: Outrider) -> Answered:
        if not (approve or reject):
            return await outrider.answer(task_id, _json_or_text(text or ""), interrupt=interrupt)
        from ..approvals import APPROVE, REJECT, decide

        question = await _question(outrider, task_id, interrupt)
        decision = decide(question, APPROVE if approve else REJECT, text)
        return await outrider.answer(task_id, decision, interrupt=question.id)

    return hand_over(client, give, _tell, way)


async def _question(outrider: Outrider, task_id: str, interrupt: str | None) -> Interrupt:
    """The question that is to be answered; the same errors as of an answer where there is not one."""
    task = await outrider.get(task_id)
    if task.status is not Status.WAITING:
        raise NotWaiting(task_id, task.status)
    ids = tuple(question.id for question in task.interrupts)
    if interrupt is None and len(ids) != 1:
        raise SeveralQuestions(task_id, ids)
    for question in task.interrupts:
        if interrupt in {None, question.id}:
            return question
    raise AnswerConflict(task_id, interrupt or "", ids)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return text


def _no_json(name: str) -> Any:
    raise ValueError(name)  # Python's parser alone takes NaN and the like


def _tell(answered: Answered, *, quiet: bool) -> None:
    """Print the run's id at once; questions that are still open go to stderr."""
    if not quiet and answered.run_id:
        print(answered.run_id, flush=True)
    for question in answered.open:
        complain(f"task {answered.task_id} still asks: outrider answer {answered.task_id} --interrupt {question} VALUE")
    for note in answered.notes:
        complain(note)
