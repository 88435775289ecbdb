"""The benchmark of wakes runs, and tells every figure that it promises. How large they are is no test's affair."""

import pytest


@pytest.mark.faults
def test_it_measures_wakes_and_crowds_and_judges_them(measure):
    report = measure("wake.py")
    figures = report["figures"]
    assert 0 < figures["wake_ms"]["p50"] <= figures["wake_ms"]["p99"]
    for agent in ("works", "leaves"):
        assert figures[agent]["told_once"] == figures[agent]["children"] == report["sizes"]["children"]
