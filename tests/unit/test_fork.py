"""What a forked child begins with: the parent's conversation as its model saw it, nothing of the parent's own."""

import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from outrider.shared.fork import LC_SOURCE, conversation, preamble, without_names
from outrider.shared.messages import closing
from outrider.shared.snapshots import Inherited, Snapshot


def human(at):
    return HumanMessage(f"human {at}", id=f"h{at}")


def calls(at, *names):
    made = [{"name": "look", "args": {"where": name}, "id": name, "type": "tool_call"} for name in names]
    return AIMessage(f"ai {at}", id=f"a{at}", tool_calls=made)


def unread(name, message):
    """A message with one more call, whose arguments nobody can read."""
    call = {"name": "look", "args": '{"where": ', "id": name, "error": None, "type": "invalid_tool_call"}
    return message.model_copy(update={"invalid_tool_calls": [call]})


def answer(name, **fields):
    return ToolMessage(f"seen {name}", tool_call_id=name, id=f"t{name}", **fields)


def ids(messages):
    return [message.id for message in messages]


def forked(messages, **state):
    return ids(conversation({"messages": messages, **state}))


def event(cutoff, **more):
    return {"summary_message": HumanMessage("summary", id="s"), "cutoff_index": cutoff, "file_path": None, **more}


TURNS = [human(0), calls(0, "x"), answer("x"), human(1), AIMessage("ok", id="a1")]


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        (event(3), ["s", "h1", "a1"]),
        (event(5), ["s"]),
        (event(99), ["s"]),
        (event(2), ["s", "h1", "a1"]),  # the result whose call is summed up has no call any more
        (None, ids(TURNS)),
        ({"summary_message": HumanMessage("summary", id="s")}, ids(TURNS)),
        ({"cutoff_index": 3}, ids(TURNS)),
        ({**event(3), "cutoff_index": None}, ids(TURNS)),
    ],
)
def test_a_summary_stands_for_what_it_sums_up(found, seen):
    assert forked(TURNS, _summarization_event=found) == seen


def test_reasoning_that_is_bound_to_what_was_summed_up_goes():
    thought = [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "so"}]
    messages = [human(0), AIMessage(thought, id="a0"), human(1), AIMessage(thought, id="a1")]
    kept = conversation({"messages": messages, "_summarization_event": event(1, created_at_index=3)})
    assert [kept[1].content, kept[3].content] == [thought[1:], thought]


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        ([calls(1, "a", "b", "c"), answer("b")], []),
        ([calls(1, "a", "b", "c")], []),
        ([calls(1, "a", "b"), answer("b"), answer("a")], ["a1", "tb", "ta"]),
        ([calls(1, "a"), answer("a"), calls(2, "b")], ["a1", "ta"]),
        ([answer("a")], []),
        ([calls(1, "a"), human(1), answer("a")], ["h1"]),
        ([calls(1, "a"), answer("a"), answer("a"), answer("z")], ["a1", "ta"]),
        ([unread("b", calls(1, "a")), answer("a")], []),
        ([unread("b", calls(1, "a")), answer("b"), answer("a")], ["a1", "tb", "ta"]),
        ([unread("b", calls(1)), answer("b"), human(1)], ["a1", "tb", "h1"]),
    ],
)
def test_calls_and_results_stay_only_together(tail, left):
    assert forked([human(0), *tail]) == ["h0", *left]


pieces = st.one_of(
    st.integers(0, 9).map(human),
    st.lists(st.sampled_from("abcd"), max_size=3, unique=True).map(lambda names: calls(1, *names)),
    st.sampled_from("abcd").map(answer),
    st.just(SystemMessage("be brief", id="sys")),
)


@given(st.lists(pieces, max_size=12), st.one_of(st.none(), st.integers(0, 14).map(event)))
def test_whatever_stands_there_a_provider_takes_what_is_forked(messages, found):
    kept = conversation({"messages": messages, "_summarization_event": found})
    open_calls = set()
    for before, message in pairwise([None, *kept, human(0)]):
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in open_calls, before
            open_calls.remove(message.tool_call_id)
        else:
            assert not open_calls
            open_calls = {call["id"] for call in message.tool_calls} if isinstance(message, AIMessage) else set()


def test_what_a_stopped_run_left_open_is_closed_the_same_way_each_time():
    tail = [answer("x"), unread("c", calls(1, "a", "b")), answer("b")]
    closed = closing([*TURNS, *tail], "r")
    assert [(one.tool_call_id, one.status, one.id) for one in closed] == [
        ("a", "error", "r-closed-a"),
        ("c", "error", "r-closed-c"),
    ]
    assert forked([human(0), *tail, *closed]) == ["h0", "a1", "tb", "r-closed-a", "r-closed-c"]
    assert closing([*TURNS, *tail, *closed], "s") == closing(TURNS, "s") == closing([], "s") == []


def test_what_is_the_parents_own_stays_with_it_and_what_it_holds_is_not_touched():
    uncopyable = threading.Lock()
    big = HumanMessage("big", id="h1", additional_kwargs={"lc_evicted_to": "/conversation_history/h1", "mine": 1})
    told = HumanMessage(
        "news",
        id="n",
        additional_kwargs={"lc_source": "x", "outrider_notification": {"seq": 9}, "deepagents_notification": {}},
    )
    image = HumanMessage([{"type": "image", "base64": "aGk=", "mime_type": "image/png"}], id="i")
    messages = [calls(0, "a"), answer("a", artifact=uncopyable), big, told, image]
    _, result, large, news, media = conversation({"messages": messages})
    assert (result.artifact, messages[1].artifact) == (None, uncopyable)
    assert (large.additional_kwargs, large.content) == ({"mine": 1}, "big")
    assert news.additional_kwargs == {"lc_source": "x"}
    assert media == image
    assert "lc_evicted_to" in big.additional_kwargs


def test_media_that_lie_in_a_file_are_put_in_again_where_this_run_has_them_at_hand():
    stub = {"type": "image", "mime_type": "image/png", "deepagents_blob": "d1"}
    other = {**stub, "deepagents_blob": "d2"}
    (kept,) = conversation({"messages": [HumanMessage([stub, other], id="h")], "_blob_payloads": {"d1": "aGk="}})
    assert kept.content == [{"type": "image", "mime_type": "image/png", "base64": "aGk="}, other]
    text = HumanMessage("text", id="t")
    assert without_names([text, kept]) == [
        text,
        HumanMessage([kept.content[0], {"type": "text", "text": "(image omitted)"}], id="h"),
    ]


def test_a_snapshot_is_what_the_parent_was_whatever_becomes_of_it():
    messages = [HumanMessage("as it was", id="h"), calls(0, "a"), answer("a", artifact=threading.Lock())]
    files = {"/large_tool_results/a": {"content": "all of it"}}
    taken = Snapshot.of({"messages": messages, "files": files})
    messages[0].content = "changed"
    files.clear()
    kept = Inherited.of(items_of(taken))
    assert [message.content for message in kept.messages] == ["as it was", "ai 0", "seen a"]
    assert ids(kept.messages) == ["h", "a0", "ta"]
    assert kept.messages[1].tool_calls == messages[1].tool_calls
    assert kept.files == {"/large_tool_results/a": {"content": "all of it"}}


def items_of(snapshot):
    names = snapshot.items[snapshot.name.encode()]
    return [snapshot.items[names[at : at + 16]] for at in range(0, len(names), 16)]


def test_snapshots_of_one_conversation_are_one_and_those_of_a_longer_one_share_its_items():
    first, again = Snapshot.of({"messages": TURNS}), Snapshot.of({"messages": [*TURNS]})
    longer = Snapshot.of({"messages": [*TURNS, human(7)]})
    assert first == again
    assert longer.name != first.name
    assert len(first.items.keys() & longer.items.keys()) == len(TURNS)


def test_an_empty_conversation_has_a_snapshot_too():
    assert Inherited.of(items_of(Snapshot.of({}))) == Inherited()


def test_the_preamble_is_no_persons_word_and_the_same_for_every_attempt():
    assert preamble("r") == preamble("r")
    assert preamble("r").additional_kwargs == {"lc_source": LC_SOURCE}
