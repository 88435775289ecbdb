"""Watching a task: its events as JSON lines, as plain lines, or live on a terminal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from .console import as_text, complain, on_terminal, print_json, print_text, run, visible
from .endings import answer_to, asked, exit_code, tell_ending
from .follow_tree import Below
from .wording import Texts, line, line_below

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from ...shared.records import Event, Task
    from ..client import Outrider


class Display(Protocol):
    """What shows a task's events."""

    def event(self, event: Event) -> None:
        """Show one event."""

    def below(self, child: Task, event: Event) -> None:
        """Show one event of a task that it started."""

    def ask(self, task: Task) -> None:
        """Show what the task, or one that it started, asks, and the commands that answer it."""

    def end(self, task: Task) -> None:
        """Show how the task ended."""


class JsonLines:
    """One event per line, and nothing else."""

    def event(self, event: Event) -> None:
        """Print it."""
        print_json(event.to_json(), lines=True)

    def below(self, child: Task, event: Event) -> None:
        """Print nothing: these are the events of one task."""

    def ask(self, task: Task) -> None:
        """Print nothing: `show --json` has the questions."""

    def end(self, task: Task) -> None:
        """Print nothing: the last event says it."""


class Lines:
    """One line per event, for pipes and logs; the pieces of a model's text are joined first."""

    def __init__(self) -> None:
        self._texts = Texts()

    def event(self, event: Event) -> None:
        """Print its line, after what a model wrote before it."""
        for text in self._texts.add(event):
            print(f"{_time(event)}  text      {visible(text)}", flush=True)
        if words := line(event):
            print(f"{_time(event)}  {visible(words)}", flush=True)

    def below(self, child: Task, event: Event) -> None:
        """Print its line with the child's name, if it is about progress or status."""
        if words := line_below(child, event):
            print(f"{_time(event)}  {visible(words)}", flush=True)

    def ask(self, task: Task) -> None:
        """Print the questions, each with the command that answers it."""
        for question in task.interrupts:
            print(f"question {question.id}: {asked(question)}")
            print(f"answer it: {answer_to(task, question)}", flush=True)

    def end(self, task: Task) -> None:
        """Print the result."""
        if task.result is not None:
            print()
            print_text(as_text(task.result))


def watch(client: Outrider, begin: Callable[[Outrider], Awaitable[tuple[str, str]]], *, as_json: bool) -> int:
    """Show the task that `begin` names, after an event of it, until it has ended; the exit code. Ctrl-C detaches."""
    watched: list[str] = []

    async def follow() -> int:
        async with client as outrider:
            task_id, after = await begin(outrider)
            watched.append(task_id)
            first = await outrider.get(task_id)
            with _view(first, as_json=as_json) as view:
                async with Below(outrider, lambda _, child: partial(_show_below, outrider, view, child)) as below:
                    async for event in outrider.follow(task_id, after):
                        view.event(event)
                        if event.type == "task.waiting":
                            view.ask(await outrider.get(task_id))
                        if not as_json:
                            await below.heard(task_id, event)
                    await below.caught_up()
            task = await outrider.get(task_id)
            view.end(task)
            if not as_json:
                tell_ending(task)
            return exit_code(task)

    try:
        return run(follow())
    except KeyboardInterrupt:
        if not watched:
            raise
        complain(f"detached: task {watched[0]} goes on (outrider follow {watched[0]})")
        return 0


def _view(task: Task, *, as_json: bool) -> AbstractContextManager[Display]:
    from contextlib import nullcontext

    if as_json:
        return nullcontext(JsonLines())
    if not on_terminal():
        return nullcontext(Lines())
    from .live import LiveView

    return LiveView(task)


def _time(event: Event) -> str:
    return f"{event.at.astimezone():%H:%M:%S}"


async def _show_below(outrider: Outrider, view: Display, child: Task, event: Event) -> None:
    view.below(child, event)
    if event.type == "task.waiting":
        view.ask(await outrider.get(child.task_id))
