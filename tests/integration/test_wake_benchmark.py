"""The benchmark of wakes runs, and tells every figure that it promises. How large they are is no test's affair."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "wake.py"


@pytest.mark.faults
def test_it_measures_wakes_and_crowds_and_judges_them(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, BENCHMARK, "--quick", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert {"cpu", "cores", "load", "python", "redis", "libraries"} <= report["machine"].keys()
    figures = report["figures"]
    assert 0 < figures["wake_ms"]["p50"] <= figures["wake_ms"]["p99"]
    for agent in ("works", "leaves"):
        assert figures[agent]["told_once"] == figures[agent]["children"] == report["sizes"]["children"]
    for target in report["targets"]:
        assert target["name"] in done.stdout
