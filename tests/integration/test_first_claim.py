"""A task that nobody held before has nothing saved, and its saver does not ask."""

import pytest

from checkpoint_graphs import chain, claimed, thread
from outrider.shared.checkpoints import RedisSaver
from outrider.shared.keys import Keys
from outrider.shared.transitions import Facts


@pytest.fixture
async def saved(real_redis, namespace):
    """Save a whole run of the task's thread, as if somebody had held it."""
    await chain(2).copy({"checkpointer": RedisSaver(real_redis, Keys(namespace))}).ainvoke({"x": []}, thread())


@pytest.mark.usefixtures("saved")
async def test_the_first_claim_of_a_task_does_not_ask(real_redis, namespace):
    saver, _ = await claimed(real_redis, namespace)
    assert await saver.aget_tuple(thread()) is None


@pytest.mark.usefixtures("saved")
async def test_a_later_claim_does(real_redis, namespace):
    saver, _ = await claimed(real_redis, namespace, epoch=2)
    assert (await saver.aget_tuple(thread())).checkpoint["channel_values"]["x"] == [0, 1]


@pytest.mark.usefixtures("saved")
async def test_another_thread_is_asked_for(real_redis, namespace):
    saver, claim = await claimed(real_redis, namespace)
    claim.facts = Facts("another", "agent")
    assert await saver.aget_tuple(thread()) is not None


async def test_the_first_claim_finds_what_it_saved(real_redis, namespace):
    saver, _ = await claimed(real_redis, namespace)
    await chain(3).copy({"checkpointer": saver}).ainvoke({"x": []}, thread())
    assert (await saver.aget_tuple(thread())).checkpoint["channel_values"]["x"] == [0, 1, 2]
