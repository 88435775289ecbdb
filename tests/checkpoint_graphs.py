"""What the saver's tests share: savers with and without a claim, and small graphs."""

import operator
from typing import Annotated, Any

from langchain_core.messages import AIMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph, add_messages
from typing_extensions import TypedDict

from outrider.shared.checkpoints import RedisSaver
from outrider.shared.context import Claim
from outrider.shared.keys import Keys
from outrider.shared.transitions import Facts


class Numbers(TypedDict):
    x: Annotated[list, operator.add]


def extend(base, writes):
    """Reduce like `operator.add`, many writes at once."""
    out = list(base or [])
    for write in writes:
        out += write
    return out


class Deltas(TypedDict):
    x: Annotated[list, DeltaChannel(extend, snapshot_frequency=5)]
    rare: Annotated[list, DeltaChannel(extend, snapshot_frequency=5)]


def thread(thread_id="t", run_id="r", **configurable) -> dict[str, Any]:
    return {
        "configurable": {"thread_id": thread_id, **configurable},
        "metadata": {"run_id": run_id},
        "recursion_limit": 1000,
    }


async def claimed(redis, namespace, run_id="r", epoch=1, token="tok", **options):  # noqa: S107
    """Give a saver with a claim that stands, and the claim."""
    claim = Claim(Facts("t", "agent"), run_id, epoch, token)
    await redis.hset(Keys(namespace).task("t"), mapping={"run_id": run_id, "epoch": epoch, "token": token})
    return RedisSaver(redis, Keys(namespace), claim, **options), claim


def chain(length, state=Numbers, fail=None, ran=None):
    """Build a graph of nodes n0, n1, … that each add their number; `fail` breaks one of them."""
    graph, before = StateGraph(state), START
    for at in range(length):

        async def node(_, at=at):
            if at == fail:
                raise ConnectionError("lost")
            if ran is not None:
                ran.append(at)
            return {"x": [at]}

        graph.add_node(f"n{at}", node)
        graph.add_edge(before, f"n{at}")
        before = f"n{at}"
    return graph.compile()


def talk(turns, text, *, delta):
    """Build a graph that adds one message a step, `turns` times, and what to give it besides messages."""
    channel = DeltaChannel(extend, snapshot_frequency=50) if delta else add_messages

    class Talk(TypedDict):
        messages: Annotated[list, channel]
        left: int

    async def say(state):
        return {"messages": [AIMessage(text(len(state["messages"])))], "left": state["left"] - 1}

    graph = StateGraph(Talk)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda state: "say" if state["left"] else END)
    return graph.compile(), {"left": turns}


async def keys_of(redis, namespace):
    """List all checkpoint keys of a namespace."""
    return sorted([key.decode() async for key in redis.scan_iter(match=f"{{{namespace}}}:ckpt*")])


async def consistent(redis, namespace, thread_id="t"):
    """Hold that the pool has what cells name, counted rightly, and the state what its records name, and no more."""
    prefix = f"{{{namespace}}}:ckpt:{thread_id}"
    counts: dict[bytes, int] = {}
    for key in await keys_of(redis, namespace):
        if not key.startswith(f"{prefix}:state:"):
            continue
        state = await redis.hgetall(key)
        records = {
            field[1:]: record.split(b"\0")[0].split(b"\x1e") for field, record in state.items() if field[:1] == b"c"
        }
        entries = {each for record in records.values() for each in record[2:]}
        writes = {
            b"\x1f".join([field[1:], *line.split(b"\x1f")[:2]])
            for field, lines in state.items()
            if field[:1] == b"i"
            for line in lines.split(b"\x1e")
            if line
        }
        assert {field[1:] for field in state if field[:1] == b"b"} <= entries
        assert {field[1:] for field in state if field[:1] == b"w"} == writes
        assert {field[1:] for field in state if field[:1] == b"i"} <= set(records)
        assert set(await redis.zrange(key.replace(":state:", ":order:", 1), 0, -1)) == set(records)
        for field, cell in state.items():
            if field[:1] in b"bw" and cell[:1] == b"r":
                for at in range(int(cell[1:7], 16)):
                    name = cell[7 + 16 * at : 23 + 16 * at]
                    counts[name] = counts.get(name, 0) + 1
    refs = {name: int(count) for name, count in (await redis.hgetall(f"{prefix}:refs")).items()}
    assert refs == counts
    assert set(await redis.hkeys(f"{prefix}:pool")) == set(counts)
