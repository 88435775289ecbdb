"""A pace lets callers go on one after the other, apart."""

import asyncio
from itertools import pairwise

import pytest

from outrider.worker.pace import Pace

APART = 0.01


async def test_who_comes_alone_goes_on_at_once():
    pace = Pace(APART)
    with pytest.raises(StopIteration):
        pace.turn().send(None)  # it ends without giving the loop a turn


async def test_those_who_come_at_once_go_on_in_their_order_and_apart():
    pace, went = Pace(APART), []

    async def caller(name):
        await pace.turn()
        went.append((name, asyncio.get_running_loop().time()))

    await asyncio.gather(*map(caller, "abcd"))
    assert [name for name, _ in went] == ["a", "b", "c", "d"]
    first = went[0][1]
    resolution = 0.002  # a loop may wake a little early, and the first was noted after its turn
    assert all(at - first > number * APART - resolution for number, (_, at) in enumerate(went))
    assert all(later > earlier for (_, earlier), (_, later) in pairwise(went))
