"""The benchmark of scale runs, and tells every figure that it promises. How large they are is no test's affair."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "scale.py"


@pytest.mark.faults
def test_it_measures_processes_queues_redis_and_pages_and_judges_them(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, BENCHMARK, "--quick", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert {"cpu", "cores", "load", "python", "redis", "libraries"} <= report["machine"].keys()
    figures, sizes = report["figures"], report["sizes"]
    assert [row["processes"] for row in figures["processes"]] == sizes["processes"]
    assert all(row["sleeping_per_s"] > 0 and row["computing_per_s"] > 0 for row in figures["processes"])
    assert figures["queues"]["small"]["tasks"] == sizes["small_queue"]
    assert figures["redis_per_task"]["dataset"] > figures["bytes_of_record"] > 0
    few, many = figures["pages_ms"]["few"], figures["pages_ms"]["many"]
    assert few.keys() == many.keys()
    assert min(*few.values(), *many.values()) > 0
    for target in report["targets"]:
        assert target["name"] in done.stdout
