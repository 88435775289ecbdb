"""Records: limits that make no sense are refused; ids are checked before anything is read."""

import pytest

from outrider.shared.errors import BadInput
from outrider.shared.ids import check_id, new_id
from outrider.shared.limits import Limits, Usage
from outrider.shared.listings import Tree
from outrider.shared.records import Task
from outrider.shared.statuses import Status


@pytest.mark.parametrize("value", [0, -1, True, False, "3", "x", 2.5, float("nan"), float("inf"), [], {}])
@pytest.mark.parametrize("name", ["max_turns", "max_tokens", "max_output_tokens"])
def test_a_count_must_be_a_whole_number_above_zero(name, value):
    with pytest.raises(BadInput) as error:
        Limits.check({name: value})
    assert f"{name} = {value!r}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [0, -0.5, True, "30", float("nan"), float("inf")])
def test_a_time_must_be_a_finite_number_above_zero(value):
    with pytest.raises(BadInput, match="timeout_seconds"):
        Limits.check({"timeout_seconds": value})


def test_an_unknown_limit_is_named_with_those_that_are_known():
    with pytest.raises(BadInput, match=r"unknown key 'max_turn' \(known limits: timeout_seconds, max_turns, "):
        Limits.check({"max_turn": 1})


def test_a_limit_of_the_caller_wins_over_the_agents():
    mine = Limits(max_turns=2)
    assert mine.over(Limits(max_turns=9, max_tokens=100)) == Limits(max_turns=2, max_tokens=100)


@pytest.mark.parametrize(
    "bad", ["", " ", "../x", "a/b", "a\x00", "-a", "_a", "a" * 129, "ü", "a b", "a\n", None, 3, b"a", ["a"]]
)
def test_a_bad_id_is_refused(bad):
    with pytest.raises(BadInput, match="is not valid"):
        check_id(bad)


@pytest.mark.parametrize("good", ["a", "A9", "a-b_c", "a" * 128])
def test_a_good_id_is_taken(good):
    assert check_id(good) == good
    assert check_id(new_id())


def test_usage_adds_up_by_model():
    one = Usage(input_tokens=1, output_tokens=2, total_tokens=3, turns=1, by_model={"m": {"total_tokens": 3}})
    two = Usage(input_tokens=4, total_tokens=4, turns=1, by_model={"m": {"total_tokens": 4}, "n": {"turns": 1}})
    both = one.plus(two)
    assert (both.input_tokens, both.total_tokens, both.turns) == (5, 7, 2)
    assert both.by_model == {"m": {"total_tokens": 7}, "n": {"turns": 1}}


def test_a_tree_adds_up_what_its_tasks_used_and_names_those_that_are_open():
    def task(task_id, status, **used):
        return Task(
            task_id=task_id, agent="a", title="a", status=status, created_at=1, updated_at=1, usage=Usage(**used)
        )

    def tree(one, *below):
        return Tree(task=one, children=below)

    leaf = tree(task("c", Status.IDLE, turns=1, input_tokens=5, total_tokens=5, by_model={"m": {"input_tokens": 5}}))
    middle = tree(task("b", Status.ERROR, turns=2), leaf)
    root = tree(
        task("a", Status.SUCCESS, turns=4, total_tokens=1, by_model={"m": {"input_tokens": 1}}),
        middle,
        tree(task("d", Status.IDLE)),
    )
    assert [one.task_id for one in root.flat()] == ["a", "b", "c", "d"]
    assert [one.task_id for one in root.open_tasks] == ["c", "d"]
    assert (root.usage.turns, root.usage.total_tokens, root.usage.by_model) == (7, 6, {"m": {"input_tokens": 6}})
    shown = root.to_json()
    assert (shown["usage"]["turns"], shown["tree_usage"]["turns"]) == (4, 7)
    assert shown["children"][0]["tree_usage"]["turns"] == 3
