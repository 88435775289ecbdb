"""How scripts reach Redis."""

import asyncio
from collections import Counter

import pytest

from outrider.shared.connections import connect
from outrider.shared.scripts import Script
from outrider.shared.settings import Settings

CALLERS = 50


@pytest.fixture
async def client(redis_url):
    async with connect(Settings(redis_url=redis_url)) as client:
        yield client


@pytest.fixture
def sent(client, monkeypatch):
    """How often each command was sent."""
    counts, execute = Counter(), client.execute_command

    async def counted(name, *args, **options):
        counts[name] += 1
        return await execute(name, *args, **options)

    monkeypatch.setattr(client, "execute_command", counted)
    return counts


@pytest.fixture
def script(namespace):
    """One that no server knows yet."""
    return Script.of(f"return '{namespace}' .. ARGV[1]")


async def test_of_many_who_find_a_script_unknown_one_sends_its_text(client, sent, script, namespace):
    replies = await asyncio.gather(*(script.run(client, (), [n]) for n in range(CALLERS)))
    assert replies == [f"{namespace}{n}".encode() for n in range(CALLERS)]
    assert (sent["EVAL"], sent["EVALSHA"]) == (1, 2 * CALLERS - 1)
    await script.run(client, (), ["again"])
    assert (sent["EVAL"], sent["EVALSHA"]) == (1, 2 * CALLERS)


async def test_where_the_one_who_sends_a_script_is_gone_another_does(client, sent, script, namespace, monkeypatch):
    begun = asyncio.Event()

    async def stands(*_):
        begun.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(client, "eval", stands)
        first = asyncio.create_task(script.run(client, (), ["first"]))
        await begun.wait()
        others = [asyncio.create_task(script.run(client, (), [n])) for n in range(CALLERS)]
        await client.ping()  # goes with what they ask, and the next one is answered when they wait
        await client.ping()
    first.cancel()
    assert await asyncio.gather(*others) == [f"{namespace}{n}".encode() for n in range(CALLERS)]
    assert (first.cancelled(), sent["EVAL"], sent["EVALSHA"]) == (True, 1, 3 * CALLERS)
