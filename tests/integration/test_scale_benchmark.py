"""The benchmark of scale runs, and tells every figure that it promises. How large they are is no test's affair."""

import pytest


@pytest.mark.faults
def test_it_measures_processes_queues_redis_and_pages_and_judges_them(measure):
    report = measure("scale.py")
    figures, sizes = report["figures"], report["sizes"]
    assert [row["processes"] for row in figures["processes"]] == sizes["processes"]
    assert all(row["sleeping_per_s"] > 0 and row["computing_per_s"] > 0 for row in figures["processes"])
    assert figures["queues"]["small"]["tasks"] == sizes["small_queue"]
    assert figures["redis_per_task"]["dataset"] > figures["bytes_of_record"] > 0
    few, many = figures["pages_ms"]["few"], figures["pages_ms"]["many"]
    assert few.keys() == many.keys()
    assert min(*few.values(), *many.values()) > 0
