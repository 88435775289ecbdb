"""From a grader's answers to a verdict that accounts for every criterion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from langgraph.errors import GraphBubbleUp, GraphDrained

from ..shared.errors import ClaimLost, OutriderError
from ..shared.grades import shortfall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from ..shared.grades import Verdict

NOT_CONFIRMED = (
    "The grader called the work satisfactory and did not account for every criterion of the rubric, so that cannot be "
    "relied on. Make the evidence for each criterion easy to find."
)


class NoVerdict(OutriderError):
    """A grader ended without a verdict."""


log = structlog.get_logger("outrider.worker")


async def asked(ask: Callable[[str | None], Awaitable[Verdict]], wanted: Sequence[str]) -> AsyncIterator[Verdict]:
    """Ask a grader, and once more where its accounting is short; each of its answers, of which the last one counts.

    `ask` gets the reason why it is asked again. `wanted` are the criteria that must be accounted for. A second try that
    raises is none.
    """
    verdict = await ask(None)
    yield verdict
    reason = shortfall(verdict, wanted)
    if reason is None:
        return
    try:
        verdict = await ask(reason)
    except (GraphBubbleUp, GraphDrained, ClaimLost):  # it was stopped, and did not fail
        raise
    except Exception as error:  # noqa: BLE001 the grader answered once: that is no error of its own
        log.warning("grader.second_try_failed", error=type(error).__name__)
    else:
        yield verdict


def relied_on(verdict: Verdict, wanted: Sequence[str]) -> tuple[Verdict, bool]:
    """What is made of the last answer, and whether it is unverified: `satisfied` without an account is not believed."""
    if verdict.result == "satisfied" and shortfall(verdict, wanted) is not None:
        return verdict.model_copy(update={"result": "needs_revision", "explanation": NOT_CONFIRMED}), True
    return verdict, False
