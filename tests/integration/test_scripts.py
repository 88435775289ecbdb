"""How scripts reach Redis."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

from outrider.shared import scripts
from outrider.shared.connections import connect
from outrider.shared.scripts import Script
from outrider.shared.settings import Settings

CALLERS = 50
LUA = Path(scripts.__file__).with_name("lua")


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


@pytest.mark.parametrize("name", [file.stem for file in LUA.glob("*.lua")])
def test_a_script_takes_as_many_arguments_as_it_names(name):
    text = (LUA / f"{name}.lua").read_text()
    counts = [int(count) for count in re.findall(r"unpack\(ARGV, 1, (\d+)\)", text)]
    assert counts == ([len(arguments)] if (arguments := Script.of(text).arguments) else [])


def test_arguments_go_by_their_names():
    script = Script.of("local a, b,\n  c = unpack(ARGV, 1, 3)\nreturn {c, b, a}")
    assert script.in_order({"c": 3, "a": 1, "b": 2}) == [1, 2, 3]
    with pytest.raises(TypeError, match="takes a, b, c, and was given a, b"):
        script.in_order({"a": 1, "b": 2})
    with pytest.raises(KeyError):
        script.in_order({"a": 1, "b": 2, "d": 4})
