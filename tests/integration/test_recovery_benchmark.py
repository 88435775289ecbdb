"""The benchmark of recovery runs, and tells every figure that it promises. How large they are is no test's affair."""

import pytest

from storm.checker import PROMISES


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_it_measures_kills_cancels_and_a_storm_and_judges_them(measure):
    report = measure("recovery.py")
    figures = report["figures"]
    assert figures["storm"]["broken"] == dict.fromkeys(PROMISES, 0)
    assert figures["storm"]["tasks"] >= report["sizes"]["storm_tasks"]
    (kill,) = figures["kills"]
    assert kill["runs"] == report["sizes"]["killed"]
    # A lease that was just renewed has not run out before its seconds are over, less those since the last heartbeat.
    assert kill["all_running_after_s"] > kill["lease_s"] / 2
    assert [cancel["how"] for cancel in figures["cancels"]] == ["one after the other", "all at once"]
    for cancel in figures["cancels"]:
        assert cancel["count"] == report["sizes"]["cancelled"]
        assert 0 < cancel["p50"] <= cancel["p99"]
