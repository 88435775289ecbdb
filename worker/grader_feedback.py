"""The feedback to an agent whose work does not satisfy its rubric."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..shared.grades import Grade

OPENING = "Your work was graded, and it is not done yet."
UNVERIFIED = "Your work was graded, and not every criterion could be confirmed: nothing is known to be wrong."
CLOSING = "Mend every open point, keep what is right, and then give your whole answer again."
SHOW = "Go through every criterion, show the evidence for each in your answer, and keep what is right."


def revision(grade: Grade) -> str:
    """The text of the message: what is open and why, and what passed and must stay.

    What passed is left out where the grading was not complete: it was not confirmed.
    """
    parts = [UNVERIFIED if grade.unverified else OPENING]
    if grade.explanation.strip():
        parts.append(grade.explanation.strip())
    if grade.open_gaps:
        parts.append(_list("What is open:", [f"{one.name}: {one.gap}" for one in grade.open_gaps]))
    passed = [one.name for one in grade.criteria if one.passed]
    if passed and not grade.unverified:
        parts.append(_list("What passed and must stay so:", passed))
    parts.append(SHOW if grade.unverified else CLOSING)
    return "\n\n".join(parts)


def _list(head: str, lines: list[str]) -> str:
    """A list of one item each: lines after an item's first are set in."""
    return "\n".join([head, *("- " + line.replace("\n", "\n  ") for line in lines)])
