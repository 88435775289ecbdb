"""A pace lets callers go on one after the other, apart."""

import asyncio

import pytest

from outrider.worker.pace import Pace

APART = 0.01


async def test_who_comes_alone_goes_on_at_once():
    pace = Pace(APART)
    with pytest.raises(StopIteration):
        pace.turn().send(None)  # it ends without giving the loop a turn


async def test_those_who_come_at_once_go_on_apart(monkeypatch):
    """By a clock that stands still: each waits for so much longer than the one before it."""
    pace, loop, waits = Pace(APART), asyncio.get_running_loop(), []

    async def sleep(seconds):
        waits.append(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        patch.setattr(loop, "time", lambda: 1_000.0)
        for _ in range(4):
            await pace.turn()
    assert waits == pytest.approx([APART, 2 * APART, 3 * APART])
