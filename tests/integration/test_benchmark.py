"""The benchmark runs, and tells every figure that it promises. How large they are is no test's affair."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "overhead.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    file = tmp_path_factory.mktemp("benchmark") / "figures.json"
    command = [sys.executable, BENCHMARK, "--quick", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


@pytest.mark.faults
def test_the_machine_and_the_sizes_are_named(run):
    _, report = run
    assert {"cpu", "cores", "load", "python", "redis", "libraries"} <= report["machine"].keys()
    assert report["sizes"]["tasks"] > 0


@pytest.mark.faults
def test_both_sides_have_the_same_figures(run):
    figures = run[1]["figures"]
    assert figures["bare"]["submits_per_s"].keys() == {"send_task"}
    assert figures["outrider"]["submits_per_s"].keys() == {"sync", "async"}
    for side in ("bare", "outrider"):
        one = figures["one_at_a_time_ms"][side]
        assert 0 < one["p50"] <= one["p99"]
        assert figures[side]["tasks_per_s"] > 0
        assert {"commands", "reads", "bytes_in", "bytes_out", "dataset"} == figures[side]["redis_per_task"].keys()


@pytest.mark.faults
def test_what_outrider_does_alone(run):
    figures = run[1]["figures"]
    assert figures["sleepers"]["wall_s"] >= 1
    few_big, many_small = sorted(figures["conversations"], key=lambda talk: talk["messages"])
    assert few_big["message_bytes"] > many_small["message_bytes"]
    for talk in (few_big, many_small):
        assert talk["bytes_in_per_step"] >= 1024
        assert talk["memory_ratio"] > 0
    assert figures["help_s"] > 0


@pytest.mark.faults
def test_the_table_names_every_target(run):
    table, report = run
    for target in report["targets"]:
        assert target["name"] in table
        assert target["reached"] in {True, False, None}
    assert "\x1b" not in table
