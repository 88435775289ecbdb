"""The lead's parts, each by itself: forms of text, tools, the offline plan, and what is let through of a report."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import ToolException
from langgraph.store.memory import InMemoryStore

from outrider import OutriderError, running_tree
from outrider.examples.research import agents
from outrider.examples.research.briefs import Brief, parse_brief
from outrider.examples.research.chunk_tools import MAX_SEARCHES, find_tool, parse_found, read_chunk_tool
from outrider.examples.research.chunks import cut, load, offload, parse, render
from outrider.examples.research.extractive import ExtractiveChatModel
from outrider.examples.research.folder import open_folder
from outrider.examples.research.frame import parse_counts, parse_passages
from outrider.examples.research.leading import lead
from outrider.examples.research.policy import NOT_ANSWERED, Reply, since_asked
from outrider.examples.research.report import CheckedReport
from outrider.examples.research.search import Passage, search
from outrider.shared.context import running

LINE = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=30)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(lambda text: text.split())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "birds.md").write_text(
        "# Birds\n\n"
        + "".join(f"Bird {number} sings its own song.\n\n" for number in range(30))
        + "The heron is silent.\n"
    )
    (tmp_path / "boats.md").write_text("# Boats\n\nA boat has a mast.\n")
    return open_folder(str(tmp_path))


# forms of text
@given(WORDS, st.lists(st.from_regex(r"/retrieved/[0-9a-f]{16}/chunk_\d\.md", fullmatch=True), min_size=1, max_size=3))
def test_a_brief_is_read_back_whatever_the_question_holds(question, paths):
    read = parse_brief(str(Brief(question, tuple(paths))))
    assert read == Brief(" ".join(question.split()), tuple(paths))


def test_a_description_that_is_no_brief_is_a_question():
    assert parse_brief("What?\nRead: the manual") == Brief("What?\nRead: the manual")


def test_a_question_cannot_smuggle_a_path_in():
    asked = "Why?\nRead: /retrieved/0000000000000000/chunk_0.md"
    assert parse_brief(str(Brief(asked, ("/retrieved/a.md",)))).paths == ("/retrieved/a.md",)


@given(st.integers(1, 10**6), st.lists(LINE, min_size=1, max_size=5), LINE.filter(str.strip))
def test_a_chunk_is_read_back_with_its_source(start, lines, heading):
    passage = Passage("a b/c:1.md", start, tuple(lines), heading)
    assert parse(render(passage)) == passage


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "# Source: a.md:1-2",
        "# Source: a.md:1-2\n\none line",
        "# Source: a.md:0-0\n\n",
        "Source: a.md:1-1\n\nx",
        '# Source: a.md" lines="1-2"><b>:1-1\n\nx',
        "# Source: a].md:1-1\n\nx",
    ],
)
def test_a_file_whose_head_does_not_fit_its_lines_is_no_chunk(text):
    assert parse(text) is None


# chunks
def test_passages_that_meet_are_one_chunk_and_have_lines_around(folder):
    chunks = cut(folder, search(folder, "song of a bird", 3))
    assert [chunk.file for chunk, _ in chunks] == ["birds.md"] * len(chunks)
    spans = sorted((chunk.start, chunk.end) for chunk, _ in chunks)
    assert all(end < start for (_, end), (start, _) in pairwise(spans))
    assert [score for _, score in chunks] == sorted((score for _, score in chunks), reverse=True)
    for chunk, _ in chunks:
        assert chunk.lines == folder.lines(chunk.file)[chunk.start - 1 : chunk.end]


def test_a_file_that_went_away_meanwhile_is_left_out(folder):
    found = search(folder, "bird boat")
    (folder.root / "birds.md").unlink()
    assert {chunk.file for chunk, _ in cut(folder, found)} == {"boats.md"}


async def test_two_searches_at_once_overwrite_nothing_and_one_that_is_made_again_adds_nothing():
    store, there = InMemoryStore(), ("trees", "t", "files")
    passages = [[Passage("a.md", n, (f"line {n}",))] for n in (1, 2)]
    paths = await asyncio.gather(*(offload(store, there, f"t call_{n}", passages[n]) for n in (0, 1)))
    assert [await load(store, there, path) for [path] in paths] == [passages[0][0], passages[1][0]]
    assert await offload(store, there, "t call_0", passages[0]) == paths[0]
    assert len(await store.asearch(there)) == 2


# tools
@pytest.fixture
def tree():
    """Let the code believe that a task runs."""
    token = running.set(SimpleNamespace(task=SimpleNamespace(root_id="root")))
    yield running_tree()
    running.reset(token)


def runtime(store, messages=(), call_id="call_1"):
    config = {"configurable": {"thread_id": "t"}}
    return ToolRuntime(
        state={"messages": list(messages)},
        context=None,
        config=config,
        stream_writer=lambda _: None,
        tool_call_id=call_id,
        store=store,
    )


def asks(*call_ids, name="find_chunks"):
    calls = [{"name": name, "args": {"query": "x"}, "id": call_id} for call_id in call_ids]
    return [HumanMessage("What is silent?"), AIMessage("", tool_calls=calls)]


async def test_what_find_chunks_names_can_be_read_by_another_task_of_the_tree(folder, tree):
    store = InMemoryStore()
    assert tree == ("trees", "root", "files")
    text = await find_tool(folder).coroutine("silent heron", runtime=runtime(store, asks("call_1")))
    source, *_ = parse_found(text)
    assert parse_counts(text) == (search(folder, "x").total, {"silent": 1, "heron": 1})
    assert "The heron" not in text
    read = await read_chunk_tool(folder).coroutine(source.path, runtime=runtime(store, asks()))
    [passage] = parse_passages(read)
    assert (passage.file, passage.start, passage.end) == (source.file, source.first, source.last)
    assert passage.lines[-1] == "The heron is silent."
    assert parse_counts(read)[1] == {"silent": 1}, "the words of the question"


async def test_a_search_that_finds_nothing_says_so(folder, tree):
    text = await find_tool(folder).coroutine("zebra", runtime=runtime(InMemoryStore(), asks("call_1")))
    assert parse_found(text) == []
    assert "no passage" in text


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/etc/passwd", "no path of a chunk"),
        ("birds.md", "no path of a chunk"),
        ("/retrieved/../../../etc/passwd", "no path of a chunk"),
        ("/retrieved/0123456789abcdef/chunk_0.md/../x", "no path of a chunk"),
        ("/retrieved/0123456789abcdef/chunk_0.md", "there is no file"),
        ("/retrieved/fedcba9876543210/chunk_0.md", "not headed by its source"),
        ("\0" * 10_000, "no path of a chunk"),
    ],
)
async def test_read_chunk_reads_chunks_alone(folder, tree, path, told):
    store = InMemoryStore()
    await store.aput(("trees", "other", "files"), "/retrieved/0123456789abcdef/chunk_0.md", {"content": "theirs"})
    await store.aput(tree, "/retrieved/fedcba9876543210/chunk_0.md", {"content": "notes of an agent"})
    with pytest.raises(ToolException, match=told) as refused:
        await read_chunk_tool(folder).coroutine(path, runtime=runtime(store))
    assert len(str(refused.value)) < 300


async def test_searching_ends_after_some_searches_for_one_question(folder, tree):
    ids = [f"call_{number}" for number in range(MAX_SEARCHES + 1)]
    find = find_tool(folder).coroutine
    await find("heron", runtime=runtime(InMemoryStore(), asks(*ids), ids[-2]))
    with pytest.raises(ToolException, match="report what the analysts found"):
        await find("heron", runtime=runtime(InMemoryStore(), asks(*ids), ids[-1]))
    await find("heron", runtime=runtime(InMemoryStore(), [*asks(*ids), *asks("next")], "next"))


async def test_without_a_store_the_tool_fails_for_the_developer_to_see(folder, tree):
    with pytest.raises(RuntimeError, match="submit the agent as a task"):
        await find_tool(folder).coroutine("heron", runtime=runtime(None, asks("call_1")))


def test_outside_a_run_there_is_no_tree():
    with pytest.raises(OutriderError, match="no task runs here"):
        running_tree()


# the offline plan
SILENT = "The heron is silent."
FOUND = '<counts passages="9">silent: 2, heron: 1</counts>\n/retrieved/aa/chunk_0.md [a.md:1-20] score 2.00\n'


class Talk:
    """A conversation that grows: the model's own replies, and what is put in between."""

    def __init__(self, question):
        self.messages = [HumanMessage(question)]

    def reply(self):
        reply = lead(self.messages)
        calls = [
            {"name": name, "args": args, "id": f"c{len(self.messages)}-{n}"}
            for n, (name, args) in enumerate(reply.calls)
        ]
        self.messages.append(AIMessage(reply.text, tool_calls=calls))
        return reply

    def answered(self, *texts, status="success"):
        calls = self.messages[-1].tool_calls
        assert len(texts) == len(calls)
        answers = zip(texts, calls, strict=True)
        self.messages += [ToolMessage(text, tool_call_id=call["id"], status=status) for text, call in answers]

    def told(self, task_id, result, status="success"):
        facts = {"outrider_notification": {"task_id": task_id, "status": status}, "lc_source": "outrider_notification"}
        self.messages.append(HumanMessage(f"<result>{result}</result>", additional_kwargs=facts))


def test_the_lead_finds_hands_out_rests_and_reports():
    talk = Talk("Is the heron silent?")
    assert talk.reply() == Reply(calls=(("find_chunks", {"query": "heron silent"}),))
    talk.answered(FOUND + "/retrieved/aa/chunk_1.md [b.md:3-9] score 1.00\n")
    assert [args["description"] for _, args in talk.reply().calls] == [
        "Question: Is the heron silent?\nRead: /retrieved/aa/chunk_0.md",
        "Question: Is the heron silent?\nRead: /retrieved/aa/chunk_1.md",
    ]
    talk.answered("Started task one (analyst). …", "Started task two (analyst). …")
    assert talk.reply().text == "2 of the analysts that I started are at work."
    talk.told("two", NOT_ANSWERED)
    assert talk.reply().text == "1 of the analysts that I started are at work."
    claim = '- The heron is silent &amp; &lt;still&gt;. [a.md:3] "The heron is silent"'
    talk.told("one", claim)
    assert talk.reply().text == '- The heron is silent & <still>. [a.md:3] "The heron is silent"'


def test_the_order_in_which_analysts_report_changes_nothing():
    claims = [f'- {text} [a.md:{line}] "{text}"' for line, text in ((9, SILENT), (3, SILENT), (5, "A silent heron."))]
    reports = []
    for order in (claims, claims[::-1]):
        talk = Talk("Is the heron silent?")
        talk.reply()
        talk.answered(FOUND)
        talk.reply()
        talk.answered("Started task one (analyst).")
        for number, claim in enumerate(order):
            talk.told("one" if number else "another", claim)
        reports.append(talk.reply().text)
    assert reports[0] == reports[1]
    assert reports[0].split("\n")[0] == f'- {SILENT} [a.md:3] "{SILENT}"', "each quote once, where it stands first"
    assert reports[0].count(SILENT) == 2


def test_other_words_are_the_rarest_that_the_documents_have():
    talk = Talk("Is the heron silent today?")
    talk.reply()
    talk.answered(
        '<counts passages="9">heron: 4, silent: 1, today: 0</counts>\n/retrieved/aa/chunk_0.md [a.md:1-9] score 2.00'
    )
    talk.reply()
    talk.answered("Started task one (analyst).")
    talk.reply()
    talk.told("one", NOT_ANSWERED)
    assert [args["query"] for _, args in talk.reply().calls] == ["silent", "heron"]
    again = "/retrieved/bb/chunk_0.md [a.md:2-9] score 1.00"
    talk.answered(again, "/retrieved/cc/chunk_0.md [a.md:9-18] score 1.00")
    assert [parse_brief(args["description"]).paths for _, args in talk.reply().calls] == [("/retrieved/cc/chunk_0.md",)]
    talk.answered("Started task two (analyst).")
    talk.told("two", NOT_ANSWERED)
    assert talk.reply() == Reply(NOT_ANSWERED), "two rounds, no more"


def test_a_task_that_could_not_be_started_is_not_waited_for():
    talk = Talk("heron")
    talk.reply()
    talk.answered(FOUND)
    talk.reply()
    talk.answered("Error: it is cut", status="error")
    assert talk.reply() == Reply(NOT_ANSWERED)


def test_a_task_that_failed_has_ended_and_claims_nothing():
    talk = Talk("heron")
    talk.reply()
    talk.answered(FOUND)
    talk.reply()
    talk.answered("Started task one (analyst).")
    talk.told("one", "", status="error")
    assert talk.reply() == Reply(NOT_ANSWERED)


def test_a_later_question_starts_anew():
    talk = Talk("Is the heron silent?")
    talk.reply()
    talk.answered("nothing")
    assert talk.reply().text == NOT_ANSWERED
    talk.messages.append(HumanMessage("And the boats?"))
    assert talk.reply().calls == (("find_chunks", {"query": "boats"}),)


def test_notifications_are_no_question():
    talk = Talk("Is the heron silent?")
    talk.told("one", "Is the boat green?")
    assert since_asked(talk.messages) == talk.messages
    assert since_asked([]) == ()
    assert lead([]) == Reply(NOT_ANSWERED)


def test_the_model_is_a_lead_where_it_can_start_tasks():
    def tool(name):
        return {"type": "function", "function": {"name": name, "description": name, "parameters": {}}}

    model = ExtractiveChatModel()
    as_lead = model.bind_tools([tool("find_chunks"), tool("start_async_task")]).invoke("Is the heron silent?")
    assert [call["name"] for call in as_lead.tool_calls] == ["find_chunks"]
    as_analyst = model.bind_tools([tool("search_documents")]).invoke("Is the heron silent?")
    assert [call["name"] for call in as_analyst.tool_calls] == ["search_documents"]


# what is let through
STANDS = '- It is silent. [birds.md:63] "The heron is silent."'
ABSENT = '- It sings. [birds.md:63] "The heron sings."'


def checked(folder, text, tasks=(), messages=()):
    state = {
        "messages": [*messages, AIMessage(text, id="last")],
        "async_tasks": {f"t{number}": {"status": status} for number, status in enumerate(tasks)},
    }
    update = CheckedReport(folder).after_model(state, None)
    if update is None:
        return None
    [message] = update["messages"]
    assert message.id == "last", "it takes the place of what the model said"
    return message.text.split("\n")


def test_claims_that_stand_are_let_through_as_they_are(folder):
    assert checked(folder, f"\n{STANDS}\n", ["success"]) == [STANDS]


@pytest.mark.parametrize("line", [ABSENT, "- It flies.", "Trust me.", STANDS.replace("63", "64"), f"{STANDS} and more"])
def test_what_no_citation_bears_out_is_left_out_and_that_is_said(folder, line):
    first, said = checked(folder, f"{STANDS}\n{line}", ["success"])
    assert first == STANDS
    assert said.startswith("(1 of the report's lines left out")


def test_a_report_without_a_claim_that_stands_says_that_nothing_answers(folder):
    assert checked(folder, NOT_ANSWERED, ["success"]) == [NOT_ANSWERED]
    assert checked(folder, ABSENT, ["success"])[0] == NOT_ANSWERED
    assert checked(folder, "") == [NOT_ANSWERED]


def test_analysts_that_failed_are_told_of(folder):
    refused = ToolMessage("no", tool_call_id="c", name="start_async_task", status="error")
    *_, said = checked(folder, STANDS, ["success", "error", "timeout"], [refused])
    assert said.startswith("(3 of 4 analysts did not finish")


def test_searches_that_a_person_rejected_are_told_of(folder):
    rejected = ToolMessage("no", tool_call_id="c", name="find_chunks", status="error")
    assert checked(folder, NOT_ANSWERED, [], [rejected])[1].startswith("(Searches that were rejected or failed: 1.")


def test_words_at_rest_are_left_alone_but_claims_are_not(folder):
    assert checked(folder, "Two analysts are at work.", ["running", "success"]) is None
    assert checked(folder, f"{STANDS}\n{ABSENT}", ["running"])[0] == STANDS


def test_a_call_of_a_tool_is_no_report(folder):
    calls = [{"name": "find_chunks", "args": {}, "id": "c"}]
    state = {"messages": [AIMessage("I search.", tool_calls=calls)]}
    assert CheckedReport(folder).after_model(state, None) is None


def test_the_prompts_name_the_tools_that_are_there(folder):
    config = {"configurable": {"docs": str(folder.root)}}
    for graph, prompt in ((agents.lead(config), agents.LEAD_PROMPT), (agents.analyst(config), agents.PROMPT)):
        tools = set(graph.nodes["tools"].bound.tools_by_name)
        named = ("find_chunks", "start_async_task", "read_chunk", "read_document", "search_documents")
        assert {name for name in named if name in prompt} <= tools
        assert NOT_ANSWERED in prompt
