"""The demo's answers: printed with their citations, each of which is looked up in the documents."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...examples.research.citations import parse, verify
from ...shared.statuses import EndedAs, RunKind
from .console import as_text, complain, console, on_terminal, visible
from .endings import DONE, ENDED_BADLY, exit_code, tell_ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...examples.research.citations import Citation
    from ...examples.research.folder import DocumentFolder
    from ...shared.records import Run, Task


@dataclass(frozen=True, slots=True)
class Answer:
    """One question with its task, and the citations of its answer with what is wrong with each (`None`: nothing)."""

    question: str
    task: Task
    below: tuple[Task, ...]  #: all that it started
    citations: tuple[tuple[Citation, str | None], ...]

    @property
    def text(self) -> str:
        """The answer; empty where there is none."""
        return as_text(self.task.result) if self.task.result is not None else ""


def read_answers(questions: Sequence[str], trees: Sequence[Sequence[Task]], folder: DocumentFolder) -> list[Answer]:
    """The answers of the trees' first tasks, their citations checked against the documents."""
    answers = []
    for question, (task, *below) in zip(questions, trees, strict=True):
        cited = parse(task.result) if isinstance(task.result, str) else []
        answers.append(Answer(question, task, tuple(below), tuple((one, verify(folder, one)) for one in cited)))
    return answers


def as_json(answers: Sequence[Answer]) -> dict[str, Any]:
    """The demo's JSON."""
    return {
        "task_id": answers[0].task.task_id,
        "report": "\n\n".join(f"## {answer.question}\n\n{answer.text}" for answer in answers),
        "citations": [citation.json() for answer in answers for citation, _ in answer.citations],
        "tasks": [task.to_json() for answer in answers for task in (answer.task, *answer.below)],
        # Nobody writes to these tasks: each run but the first, or one that was approved or revises, came with news.
        "wakes": sum(len(_woken(answer.task.runs or ())) for answer in answers),
    }


def _woken(runs: Sequence[Run]) -> list[Run]:
    agents = [run for run in runs if run.kind is RunKind.AGENT]
    revised = {run.run_id for before, run in pairwise(runs) if before.kind is RunKind.GRADE}
    after = [run for before, run in pairwise(agents) if before.ended_as is not EndedAs.PAUSED]
    return [run for run in after if run.run_id not in revised]


def print_answers(answers: Sequence[Answer]) -> None:
    """Print each answer under its question: claims with their places in the documents."""
    for answer in answers:
        print()
        if on_terminal():
            _print_styled(answer)
        else:
            print(f"## {answer.question}\n\n{answer.text}")
    count = sum(len(answer.citations) for answer in answers)
    looked_up = f"; the quotes of {count - len(_faults(answers))} stand in the documents word for word" if count else ""
    print(f"\n{count} citation{'s' * (count != 1)}{looked_up}.")


def judge(answers: Sequence[Answer]) -> int:
    """Return the exit code; what went wrong goes to stderr."""
    for answer in answers:
        for task in (answer.task, *answer.below):
            tell_ending(task)
    failed = [answer for answer in answers if answer.task.status != "success"]
    faults = _faults(answers)
    for citation, fault in faults:
        complain(f"citation {citation.file}:{citation.line} is not verified: {fault}")
    if failed or faults:
        return ENDED_BADLY
    return max((exit_code(answer.task) for answer in answers), default=DONE)


def _faults(answers: Sequence[Answer]) -> list[tuple[Citation, str]]:
    return [(citation, fault) for answer in answers for citation, fault in answer.citations if fault]


def _print_styled(answer: Answer) -> None:
    from rich.padding import Padding
    from rich.text import Text

    screen = console()
    screen.print(Text(visible(answer.question), "bold"))
    for citation, fault in answer.citations:
        mark = ("✗ ", "red") if fault else ("✓ ", "green")
        place = (f"  {visible(citation.file)}:{citation.line}", "cyan")
        screen.print(Padding(Text.assemble(mark, visible(citation.claim), place), (0, 0, 0, 2)))
    for text in answer.text.splitlines():
        if not parse(text):
            screen.print(Padding(Text(visible(text), "dim"), (0, 0, 0, 2)))
