"""What a command does after it gave a task work: leave, wait for its end, or follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from ...shared.errors import BadInput, WaitTimeout
from . import options
from .console import as_text, complain, print_json, print_text, run, working
from .endings import DONE, NOT_SATISFIED, QUESTION, TIMED_OUT, answer_to, asked, exit_code, tell_ending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...shared.records import Task
    from ..client import Outrider


class Handed(Protocol):
    """The client's answer about a task that got work."""

    @property
    def task_id(self) -> str:
        """The task."""

    @property
    def event_id(self) -> str:
        """The id of the event after which to follow it."""

    def to_json(self) -> dict[str, Any]:
        """The public form."""


A = TypeVar("A", bound=Handed)


@dataclass(frozen=True, slots=True)
class Way:
    """What to do once the task has its work."""

    waits: bool
    bound: float | None  #: seconds that the wait takes at most
    follows: bool
    as_json: bool

    @classmethod
    def chosen(cls, *, wait: bool, wait_timeout: str | None, follow: bool, as_json: bool) -> Self:
        """Read the options; `BadInput` where they contradict each other."""
        bound = options.seconds("--wait-timeout", wait_timeout)
        waits = wait or bound is not None
        if follow and waits:
            raise BadInput("--follow watches until the end: leave out --wait and --wait-timeout")
        return cls(waits, bound, follow, as_json)


def hand_over(client: Outrider, give: Callable[[Outrider], Awaitable[A]], tell: Callable[..., None], way: Way) -> int:
    """Give the work, print the answer with `tell(answer, quiet=…)`, then wait or follow; returns the exit code."""
    if way.follows:
        return _follow(client, give, tell, as_json=way.as_json)
    return run(_wait(client, give, tell, way))


async def _wait(client: Outrider, give: Callable[[Outrider], Awaitable[A]], tell: Callable[..., None], way: Way) -> int:
    import asyncio

    async with client as outrider:
        answer = await give(outrider)
        tell(answer, quiet=way.as_json)
        if not way.waits:
            if way.as_json:
                print_json(answer.to_json())
            return 0
        code = 0
        asking = asyncio.create_task(_tell_questions_below(outrider, answer))
        try:
            with working(f"task {answer.task_id} goes on, also after Ctrl-C", quiet=way.as_json):
                task = await outrider.wait(answer.task_id, way.bound)
        except asyncio.CancelledError:
            complain(f"task {answer.task_id} goes on (outrider follow {answer.task_id})")
            raise
        except WaitTimeout as error:
            complain(str(error))
            task, code = await outrider.get(answer.task_id), TIMED_OUT
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if way.as_json:
            # Where both have a key, the task's is newer.
            print_json({**answer.to_json(), **task.to_json()})
        elif not code:
            _print_ending(task)
        return code or exit_code(task)


async def _tell_questions_below(outrider: Outrider, answer: Handed) -> None:
    """Say on stderr what a subagent asks a person meanwhile: the task may rest until that is answered."""
    async for event in outrider.follow(answer.task_id, answer.event_id):
        if event.type == "inbox.arrived":
            child = await outrider.get(event.data["task_id"])
            for question in child.interrupts:
                complain(f"its subagent {child.agent} asks: {asked(question)} ({answer_to(child, question)})")


def _follow(
    client: Outrider, give: Callable[[Outrider], Awaitable[A]], tell: Callable[..., None], *, as_json: bool
) -> int:
    from .watching import watch

    async def begin(outrider: Outrider) -> tuple[str, str]:
        answer = await give(outrider)
        tell(answer, quiet=as_json)
        if as_json:
            print_json(answer.to_json(), lines=True)
        return answer.task_id, answer.event_id

    return watch(client, begin, as_json=as_json)


def _print_ending(task: Task) -> None:
    if exit_code(task) == QUESTION:
        for question in task.interrupts:
            print(f"question {question.id}: {asked(question)}")
    elif task.result is not None and exit_code(task) in {DONE, NOT_SATISFIED}:
        print_text(as_text(task.result))
    tell_ending(task)
