"""What the example's checks make of a report."""

from types import SimpleNamespace

import pytest
from langchain_core.runnables.config import var_child_runnable_config

from outrider.examples.research.grading import checks
from outrider.examples.research.policy import NOT_ANSWERED
from outrider.shared.grades import Verdict

STANDS = '- It is cut on Tuesdays. [handbook.md:2] "cut on Tuesdays"'
FALSE = '- It is cut on Mondays. [handbook.md:2] "cut on Mondays"'
GONE = '- It is cut. [gone.md:1] "cut"'


@pytest.fixture
def graded(tmp_path):
    (tmp_path / "handbook.md").write_text("# Releases\nA release is cut on Tuesdays.\n")
    outer = var_child_runnable_config.set({"configurable": {"docs": str(tmp_path)}})
    yield lambda report: Verdict.model_validate(checks(SimpleNamespace(result=report), {}))
    var_child_runnable_config.reset(outer)


@pytest.mark.parametrize("report", [STANDS, NOT_ANSWERED, f"{STANDS}\n(1 of the report's lines left out.)"])
def test_a_report_of_which_every_quote_stands_is_satisfying(graded, report):
    assert graded(report).result == "satisfied"


@pytest.mark.parametrize(
    ("report", "gap"),
    [
        (f"{STANDS}\n{FALSE}", "the quote does not stand in handbook.md:2"),
        (GONE, "gone.md"),
        ("On Tuesdays, I think.", "neither"),
        (None, "neither"),
    ],
)
def test_a_report_with_a_quote_that_does_not_stand_goes_back_with_it(graded, report, gap):
    verdict = graded(report)
    assert verdict.result == "needs_revision"
    (missed,) = [criterion for criterion in verdict.criteria if not criterion.passed]
    assert gap in missed.gap
