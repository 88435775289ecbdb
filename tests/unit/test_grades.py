"""Verdicts, coverage, and what is recorded of a grading."""

import pytest
from pydantic import ValidationError

from outrider.shared.errors import BadInput
from outrider.shared.grades import (
    MAX_CRITERIA,
    MAX_EXPLANATION,
    MAX_GAP,
    Grade,
    GradeResult,
    Verdict,
    explained,
    frozen,
    recorded,
    shortfall,
)
from outrider.shared.rubric import MAX_RUBRIC, Rubric

MET = {"name": "It cites a source", "passed": True}
OPEN = {"name": "It is in English", "passed": False, "gap": "the second half is in French"}


def verdict(result, *criteria, explanation="because"):
    return Verdict.model_validate({"result": result, "explanation": explanation, "criteria": list(criteria)})


def grade(result, *criteria, by="model"):
    return Grade(
        result=result,
        explanation="",
        iteration=0,
        criteria=recorded(verdict("failed", *criteria).criteria, by),
        grading_run_id="g",
        graded_run_id="r",
        result_sha256="",
    )


@pytest.mark.parametrize(
    "criterion",
    [
        {"name": "a", "passed": True, "gap": "none"},
        {"name": "a", "passed": False},
        {"name": "a", "passed": False, "gap": "  "},
        {"name": "a", "passed": True, "note": "x"},
        {"name": " ", "passed": True},
        {"passed": True},
        {"name": "a"},
    ],
)
def test_a_criterion_that_is_neither_met_nor_open_with_its_gap_is_refused(criterion):
    with pytest.raises(ValidationError):
        verdict("needs_revision", criterion, OPEN)


@pytest.mark.parametrize("result", ["max_iterations_reached", "grader_error", "SATISFIED", "", None])
def test_a_grader_has_three_words(result):
    assert verdict("failed").result == "failed"
    with pytest.raises(ValidationError):
        verdict(result)


def test_other_keys_are_refused():
    with pytest.raises(ValidationError, match="extra"):
        Verdict.model_validate({"result": "failed", "explanation": "", "criteria": [], "score": 1})


def test_a_verdict_agrees_with_its_criteria():
    assert verdict("satisfied", MET)
    assert verdict("needs_revision", MET, OPEN)
    assert verdict("needs_revision")
    with pytest.raises(ValidationError, match="not met: It is in English"):
        verdict("satisfied", MET, OPEN)
    with pytest.raises(ValidationError, match="every criterion is met"):
        verdict("needs_revision", MET)
    with pytest.raises(ValidationError, match="named twice, as met and as not met: It cites a source"):
        verdict("needs_revision", MET, {**OPEN, "name": "It cites a source"})
    assert verdict("needs_revision", MET, MET, OPEN, OPEN)


def test_the_recorded_results_are_the_graders_words_and_two_more():
    words = {"satisfied", "needs_revision", "failed"}
    assert {str(result) for result in GradeResult} == words | {"max_iterations_reached", "grader_error"}


def test_the_first_accounting_is_frozen():
    first, more = grade("needs_revision", MET, OPEN), grade("needs_revision", MET)
    assert frozen([]) == frozen([grade("needs_revision"), grade("failed", MET)]) == ()
    assert frozen([grade("failed", MET), grade("grader_error"), first, more]) == (MET["name"], OPEN["name"])
    assert frozen([grade("needs_revision", MET, by="checks")]) == ()


def test_an_accounting_covers_the_frozen_criteria():
    wanted = (MET["name"], OPEN["name"])
    assert shortfall(verdict("needs_revision", MET, OPEN), wanted) is None
    assert shortfall(verdict("needs_revision", MET, OPEN, {**OPEN, "name": "more"}), wanted) is None
    reworded = {"name": "it  cites a\nSource.", "passed": True}
    assert shortfall(verdict("satisfied", reworded), wanted[:1]) is None
    numbered = {"name": "1. It cites a source.", "passed": True}
    assert shortfall(verdict("satisfied", numbered), wanted[:1]) is None
    assert shortfall(verdict("satisfied", MET), ("1. It cites a source",)) is None
    assert "1 of 2" in shortfall(verdict("satisfied", MET), wanted)
    assert "number 2" in shortfall(verdict("satisfied", MET, {**MET, "name": "other"}), wanted)
    assert "no criterion" in shortfall(verdict("satisfied"), ())
    assert "no criterion" in shortfall(verdict("needs_revision"), wanted)
    assert shortfall(verdict("failed"), wanted) is None


def test_a_verdict_may_quote_text_that_cannot_be_stored():
    told = verdict("needs_revision", {"name": "a\ud800", "passed": False, "gap": "b\ud800\0"}, explanation="c\udfff")
    assert (told.explanation, told.criteria[0].name, told.criteria[0].gap) == ("c\ufffd", "a\ufffd", "b\ufffd\ufffd")


def test_what_is_recorded_is_bounded_and_clean():
    long = {"name": "n" * 10_000, "passed": False, "gap": "g\x00" * 10_000}
    criteria = recorded(verdict("needs_revision", *[long] * (MAX_CRITERIA + 5)).criteria, "model")
    assert len(criteria) == MAX_CRITERIA
    assert len(criteria[0].gap) == MAX_GAP
    assert "\x00" not in criteria[0].gap
    assert len(explained("e" * 10_000)) == MAX_EXPLANATION


def test_of_too_many_criteria_those_that_are_open_are_recorded():
    criteria = recorded(verdict("needs_revision", *[MET] * MAX_CRITERIA, OPEN).criteria, "checks")
    assert (len(criteria), [one.name for one in criteria if not one.passed]) == (MAX_CRITERIA, [OPEN["name"]])


def test_a_long_name_that_was_frozen_is_found_again():
    long = {"name": "n" * 10_000, "passed": True}
    wanted = frozen([grade("needs_revision", long)])
    assert shortfall(verdict("satisfied", long), wanted) is None


def test_a_rubric_is_its_text():
    rubric = Rubric("cites a source")
    assert (rubric.text, rubric.max_iterations, rubric.model, rubric.tools) == ("cites a source", 3, None, None)
    assert Rubric.check("cites a source") == rubric == Rubric.check(rubric) == Rubric.check(rubric.to_json())
    assert Rubric.model_validate_json(rubric.model_dump_json()) == rubric
    assert Rubric.check(None) is None


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "text: must be text"),
        (" \n", "text: must be text"),
        (7, "rubric: must be text, or an object"),
        ({}, "text: must be text"),
        ({"text": "a", "max_iterations": True}, "max_iterations"),
        ({"text": "a", "max_iterations": 0}, "max_iterations"),
        ({"text": "a", "max_iterations": 1.5}, "max_iterations"),
        ({"text": "a", "max_iterations": 101}, "max_iterations"),
        ({"text": "a", "model": ""}, "model"),
        ({"text": "a", "tools": "files"}, "tools: must be a list of names, and is 'files'"),
        ({"text": "a", "tools": [""]}, "tools: must be a list of names"),
        ({"text": "a", "iterations": 3}, "unknown key 'iterations'"),
        ("x" * (MAX_RUBRIC + 1), "text: "),
    ],
)
def test_a_bad_rubric_is_named_on_one_line(value, fault):
    with pytest.raises(BadInput, match=fault) as caught:
        Rubric.check(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fields", [{"text": ""}, {"text": "a", "max_iterations": 0}, {"text": "a", "rounds": 2}])
def test_a_bad_rubric_says_so_in_our_words(fields):
    with pytest.raises(BadInput, match=r"^rubric: [^\n]*$"):
        Rubric(**fields)
