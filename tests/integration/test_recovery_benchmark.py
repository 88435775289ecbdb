"""The benchmark of recovery runs, and tells every figure that it promises. How large they are is no test's affair."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from storm.checker import PROMISES

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "recovery.py"


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_it_measures_kills_cancels_and_a_storm_and_judges_them(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, BENCHMARK, "--quick", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert {"cpu", "cores", "load", "python", "redis", "libraries"} <= report["machine"].keys()
    figures = report["figures"]
    assert figures["storm"]["broken"] == dict.fromkeys(PROMISES, 0)
    assert figures["storm"]["tasks"] >= report["sizes"]["storm_tasks"]
    (kill,) = figures["kills"]
    assert kill["runs"] == report["sizes"]["killed"]
    # A lease that was just renewed has not run out before its seconds are over, less those since the last heartbeat.
    assert kill["all_running_after_s"] > kill["lease_s"] / 2
    assert 0 < figures["cancel_ms"]["p50"] <= figures["cancel_ms"]["p99"]
    for target in report["targets"]:
        assert target["name"] in done.stdout
