"""From what a grader answers to a verdict that can be relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from langgraph.errors import GraphBubbleUp, GraphDrained

from ..shared.errors import ClaimLost, OutriderError
from ..shared.grades import shortfall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..shared.grades import Verdict

NOT_CONFIRMED = (
    "The grader called the work satisfactory and did not account for every criterion of the rubric, so that cannot be "
    "relied on. Make the evidence for each criterion easy to find."
)


class NoVerdict(OutriderError):
    """A grader ended without a verdict."""


log = structlog.get_logger("outrider.worker")


async def judged(ask: Callable[[str | None], Awaitable[Verdict]], wanted: Sequence[str]) -> tuple[Verdict, bool]:
    """Ask a grader, and once more where its accounting is short; the verdict, and whether it is unverified.

    `ask` gets the reason why it is asked again. `wanted` are the criteria that must be accounted for. Where the second
    try raises, the first answer stands. What is still `satisfied` without an account becomes `needs_revision`.
    """
    verdict = await ask(None)
    reason = shortfall(verdict, wanted)
    if reason is not None:
        try:
            verdict = await ask(reason)
        except (GraphBubbleUp, GraphDrained, ClaimLost):  # it was stopped, and did not fail
            raise
        except Exception as error:  # noqa: BLE001 the grader answered once: that is no error of its own
            log.warning("grader.second_try_failed", error=type(error).__name__)
    if verdict.result == "satisfied" and shortfall(verdict, wanted) is not None:
        return verdict.model_copy(update={"result": "needs_revision", "explanation": NOT_CONFIRMED}), True
    return verdict, False
