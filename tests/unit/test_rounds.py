"""Rounds of a worker process: they go on whatever fails, and begin at once where something is due."""

import asyncio

from outrider.worker.rounds import Rounds


async def test_a_round_that_fails_is_told_once_and_the_next_ones_follow():
    done, told, over = [], [], asyncio.Event()
    rounds = Rounds(0, told.append)

    async def work():
        done.append(None)
        if len(done) in {1, 2, 5}:
            raise ConnectionError
        if len(done) == 6:
            over.set()
        return len(done) == 3

    running = asyncio.create_task(rounds.run(work))
    await over.wait()
    running.cancel()
    assert told == ["ConnectionError"] * 2


async def test_what_is_due_does_not_wait_for_the_next_round():
    began = asyncio.Event()

    async def work():
        began.set()
        return False

    rounds = Rounds(10**6, lambda _: None)
    running = asyncio.create_task(rounds.run(work))
    rounds.look()
    await began.wait()
    running.cancel()
