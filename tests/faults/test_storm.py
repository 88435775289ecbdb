"""A short storm: all breaks at once, and what was seen is held against the promises. `make faults` has a long one."""

import pytest

from storm.ground import Plan
from storm.run import brew

SHORT = Plan(tasks=60, at_once=25, threads=2, prefork=0, between_seconds=2.5)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_storm_breaks_no_promise(tmp_path):
    report = await brew(SHORT, tmp_path)
    assert report.violations == []
    assert report.tasks >= SHORT.tasks
