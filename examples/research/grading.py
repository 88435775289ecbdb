"""When a lead's report is good enough: what a program can look up, and what it takes a model to judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.config import get_config

from outrider.examples.research.citations import parse, verify
from outrider.examples.research.folder import open_folder
from outrider.examples.research.policy import NOT_ANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from outrider import Task

RUBRIC = """\
- Each claim of the report answers the question that was asked, or a part of it.
- Each claim says no more than its quote shows.
- No claim of an analyst that answers the question better was left out."""


def checks(task: Task, _state: Mapping[str, Any]) -> dict[str, Any]:
    """Hold that every citation exists and that its quote stands there; a report without any says so."""
    folder = open_folder(get_config().get("configurable", {}).get("docs"))
    report = task.result if isinstance(task.result, str) else ""
    criteria = list(_criteria(report, {str(one): verify(folder, one) for one in parse(report)}))
    good = all(criterion["passed"] for criterion in criteria)
    return {
        "result": "satisfied" if good else "needs_revision",
        "explanation": "Every citation stands." if good else "Not every citation stands.",
        "criteria": criteria,
    }


def _criteria(report: str, faults: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:
    said = bool(faults) or NOT_ANSWERED in report
    yield _criterion("The report has claims, or says that there are none", "it has neither", met=said)
    for claim, fault in faults.items():
        yield _criterion(f"The quote stands there: {claim}", fault or "", met=fault is None)


def _criterion(name: str, gap: str, *, met: bool) -> dict[str, Any]:
    return {"name": name, "passed": met} | ({} if met else {"gap": gap})
