"""The benchmark runs, and tells every figure that it promises. How large they are is no test's affair."""

import pytest


@pytest.fixture(scope="module")
def report(measure):
    return measure("overhead.py")


@pytest.mark.faults
def test_the_sizes_are_named(report):
    assert report["sizes"]["tasks"] > 0


@pytest.mark.faults
def test_both_sides_have_the_same_figures(report):
    figures = report["figures"]
    assert figures["bare"]["submits_per_s"].keys() == {"send_task"}
    assert figures["outrider"]["submits_per_s"].keys() == {"sync", "async"}
    for side in ("bare", "outrider"):
        one = figures["one_at_a_time_ms"][side]
        assert 0 < one["p50"] <= one["p99"]
        assert figures[side]["tasks_per_s"] > 0
        assert {"commands", "reads", "bytes_in", "bytes_out", "dataset"} == figures[side]["redis_per_task"].keys()


@pytest.mark.faults
def test_what_outrider_does_alone(report):
    figures = report["figures"]
    assert figures["sleepers"]["wall_s"] >= 1
    few_big, many_small = sorted(figures["conversations"], key=lambda talk: talk["messages"])
    assert few_big["message_bytes"] > many_small["message_bytes"]
    for talk in (few_big, many_small):
        assert talk["bytes_in_per_step"] >= 1024
        assert talk["memory_ratio"] > 0
    assert figures["help_s"] > 0
