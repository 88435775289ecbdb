"""How often events are written depends on how many runs a worker has."""

from outrider.worker.emitter import FLUSH_SECONDS, FLUSHES, pause


def test_a_run_among_few_is_shown_at_once():
    assert pause(1) == pause(10) == FLUSH_SECONDS


def test_many_runs_share_the_writes():
    assert pause(4 * FLUSHES) == 4
