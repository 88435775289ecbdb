"""The health check of a worker's container: consuming is what counts, not living."""

import asyncio
import signal
import sys

import pytest

from outrider.shared.settings import Settings
from sites import open_site


@pytest.fixture
async def site(redis_url, broker_url, namespace):
    async with open_site(Settings(redis_url=redis_url, broker_url=broker_url, namespace=namespace)) as site:
        yield site


async def health(site, *arguments, **env):
    """Exit code and text of the check."""
    check = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", "outrider.worker.health", *arguments),
        env={**site.worker().environment, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await check.communicate()
    return check.returncode, said.decode()


async def test_a_worker_is_well_as_long_as_it_consumes(site):
    code, said = await health(site)
    assert (code, "consumes nothing" in said) == (1, True)
    with site.worker("-c", "1", "-Q", "parents,slow", "-n", "first@%h") as worker:
        await worker.says("ready")
        (node,) = await site.online()
        assert node.startswith("first@")
        host, named, another = await asyncio.gather(health(site), health(site, node), health(site, "another@host"))
        assert host == named == (0, "consumes parents, slow\n")
        assert another[0] == 1
        worker.process.send_signal(signal.SIGSTOP)  # it lives, and does nothing
        code, said = await health(site)
        assert (code, "no worker of" in said) == (1, True)
        worker.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("broker_url", [""])
async def test_a_broker_out_of_reach_is_told_in_one_line(site):
    code, said = await health(site, OUTRIDER_BROKER_URL="redis://:hush@127.0.0.1:1/0")
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("outrider: cannot reach the broker at redis://:***@127.0.0.1:1/0: ")
