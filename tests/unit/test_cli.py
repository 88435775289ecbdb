"""The command line in this process, on a fake Redis: what it prints, where, and with which exit code."""

import asyncio
import io
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace

import fakeredis
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from outrider.orchestrator import client as client_module
from outrider.orchestrator import links, waiting
from outrider.orchestrator.cli import console, main, options, wait_or_follow, watching
from outrider.orchestrator.cli import worker as worker_verb
from outrider.orchestrator.cli.list_tasks import age
from outrider.orchestrator.links import Links
from outrider.shared import connections
from outrider.shared.errors import BadInput
from outrider.shared.grades import Grade, GradedCriterion, GradeResult
from outrider.shared.records import Fault, Interrupt
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import Ending, Facts, NotClaimed, Submission

VERBS = ("submit", "list", "show", "follow", "answer", "update", "cancel", "worker", "demo")


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return self.out.splitlines()


class World:
    """A fake Redis, and a worker that does at the bell what the test wants."""

    def __init__(self):
        self.server = fakeredis.FakeServer(version=(7,))
        self.at_the_bell = None

    def redis(self):
        client = fakeredis.FakeAsyncRedis(server=self.server, decode_responses=False)
        client.connection_pool.connection_class = connections._heeding(client.connection_pool.connection_class)
        return client

    def links(self, settings):
        store = Store(self.redis(), settings.namespace)

        async def ring(bell):
            if self.at_the_bell:
                await self.at_the_bell(store, bell)

        return Links(store, self.redis, ring)


@pytest.fixture
def world(monkeypatch, tmp_path):
    config = tmp_path / "langgraph.json"
    config.write_text(json.dumps({"graphs": {"agent": "./agents.py:agent", "other": "./agents.py:other"}}))
    monkeypatch.setenv("OUTRIDER_CONFIG", str(config))
    monkeypatch.setenv("OUTRIDER_NAMESPACE", "cli")
    monkeypatch.setenv("OUTRIDER_MAX_INPUT_BYTES", "1000")
    made = World()
    monkeypatch.setattr(links, "open_links", made.links)
    return made


@pytest.fixture
def outrider(world, capsys):
    def run(*arguments):
        capsys.readouterr()
        code = main.run(arguments)
        return Ran(code, *capsys.readouterr())

    return run


def ends(status=Status.SUCCESS, *, result=None, error="", events=(), questions=()):
    """What a worker does with a run: claims it, tells its events, ends it."""

    async def work(store, bell):
        facts = Facts.of(await store.peek(bell.task_id))
        claimed = await store.claim(facts, bell.run_id, worker="w1", lease_ms=30_000)
        assert await store.emit(claimed.claim, events)
        ending = Ending(
            RunStatus.SUCCESS if status is not Status.ERROR else RunStatus.ERROR,
            EndedAs.PAUSED if questions else EndedAs.FINISHED,
            status,
            task_phase=Phase.ASKING if questions else None,
            interrupts=tuple(Interrupt(id=f"q{n}", value=asked) for n, asked in enumerate(questions, 1)),
            result=json.dumps(result) if result is not None else None,
            error_type=error,
            error_message="it broke" if error else "",
        )
        assert await store.settle(claimed.claim, ending)

    return work


async def waits_for_a_slot(store, bell):
    """What a worker does with a run whose agent has no slot free."""
    facts = Facts(bell.task_id, "agent")
    await store.submit(Submission(task_id="t", run_id="t-1", agent="agent", title="x", queue="subagents", input={}))
    assert await store.claim(Facts("t", "agent"), "t-1", worker="w1", lease_ms=30_000)
    assert await store.claim(facts, bell.run_id, worker="w1", lease_ms=30_000, slots=1) == NotClaimed("waits")


def test_one_that_waits_for_a_slot_is_told_so(outrider, world):
    world.at_the_bell = waits_for_a_slot
    task_id = outrider("submit", "agent", "text").out.strip()
    assert outrider("show", task_id, "--json").json["waits_for"] == "slot"
    assert "waits\tfor a slot" in outrider("show", task_id).out
    assert f"{task_id}\tpending/queued (slot)\tagent" in outrider("list").out


def test_every_verb_has_help_with_examples(outrider):
    shown = outrider("--help")
    assert shown.code == 0
    assert [verb for verb in VERBS if f"\n  {verb} " not in shown.out] == []
    assert "..." not in shown.out.split("Exit codes: 0 done")[0].split("Commands:")[1], "no verb's line is cut"
    assert "6 done, but its grade is not satisfied" in " ".join(shown.out.split())
    for verb in VERBS:
        shown = outrider(verb, "--help")
        assert shown.code == 0
        assert f"outrider {verb}" in shown.out.split("Examples:")[1]


def test_help_imports_nothing_heavy():
    heavy = {"anyio", "asyncio", "celery", "kombu", "langchain", "langgraph", "pydantic", "redis", "rich", "structlog"}
    code = (
        "import sys\nfrom outrider.orchestrator.cli.main import run\nassert run(['--help']) == 0\n"
        f"print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "outrider: No such command 'nope' (see `outrider --help`)"),
        (["list", "--nope"], "see `outrider list --help`"),
        (["show"], "Missing argument 'ID'"),
        (["submit", "agent", "text", "--max-turns", "many"], "--max-turns"),
        (["list", "--status", "done"], "'done'"),
        (["worker", "--pool", "gevent"], "'gevent'"),
        (["submit", "agent", "- item"], "what begins with - and is no option stands after --"),
        (["submit", "agent", "text", "--wait-timeout", "9" * 400], "must be a duration"),
        (["submit", "a" * 50_000, "text"], "…: langgraph.json names agent, other"),
        (["submit", "agent", "text", "--timeout", "x" * 50_000], "…': must be a duration"),
        (["submit", "agent", "text", "--metadata", "x" * 50_000], "…': must be key=value"),
        (["submit", "agent", "text", "--state", "@" + "x" * 50_000], "…: cannot be read: File name too long"),
        (["submit", "agent", "text", "--state", "@~nobody-of-this-name/x"], "cannot be read: Could not determine home"),
        (["submit", "agent", "text", "--state", "@/dev/null"], "outrider: --state @/dev/null: is no regular file"),
    ],
)
def test_bad_use_is_one_line_on_stderr(arguments, message, outrider):
    ran = outrider(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert len(ran.err) < 400
    assert outrider("list").out == ""


CLI = "from outrider.orchestrator.cli.main import main; main()"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("--help >/dev/full", 2, "No space left on device"),
        ("--help >&-", 0, ""),
        ("submit agent - <&-", 3, "outrider: cannot reach Redis"),
    ],
)
def test_streams_that_are_full_or_closed_cost_no_traceback(arguments, code, told, world, monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", "redis://127.0.0.1:1")
    line = shlex.join([sys.executable, "-c", CLI]) + f" {arguments}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1 if told else 0)
    assert told in done.stderr


def test_with_stderr_closed_nothing_of_it_goes_to_stdout(world):
    line = shlex.join([sys.executable, "-c", CLI]) + " show ''"
    done = subprocess.run(["/bin/sh", "-c", f"{line} 2>&-"], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")


def test_what_the_terminal_cannot_encode_is_printed_as_an_escape(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code = f"import importlib.metadata as of\nof.version = lambda _: 'caf\\xe9 \\ud800'\n{CLI}"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("caf\\xe9 \\ud800\n", "")


def test_without_a_verb_the_help_is_shown(outrider):
    ran = outrider()
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: outrider" in ran.err


def test_the_version_is_shown(outrider, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} 1.2.3")
    assert outrider("--version").out == "outrider 1.2.3\n"


def test_submit_prints_the_id_alone(outrider):
    ran = outrider("submit", "agent", "Do it.")
    assert (ran.code, ran.err) == (0, "")
    [task_id] = ran.lines
    task = outrider("show", task_id, "--json").json
    assert (task["task_id"], task["status"], task["phase"], task["runs"][0]["status"]) == (
        task_id,
        "pending",
        "queued",
        "pending",
    )


def test_submit_as_json(outrider):
    ran = outrider("submit", "agent", "Do it.", "--json", "--title", "x" * 300)
    assert set(ran.json) == {"task_id", "run_id", "status", "created", "notes"}
    assert (ran.json["status"], ran.json["created"]) == ("pending", True)
    assert "title cut to 200" in ran.err


def test_submit_options_reach_the_record(outrider, tmp_path):
    (tmp_path / "state.json").write_text('\ufeff{"files": {"a": "b"}}', encoding="utf-8")
    ran = outrider(
        *("submit", "agent", "Do it.", "--json", "--timeout", "1m30s", "--max-turns", "5", "--max-tokens", "900"),
        *("--max-output-tokens", "300", "--idle", "2m", "--max-children", "3"),
        *("--metadata", "team=docs", "--metadata", "empty=", "--queue", "fast", "--title", "A title"),
        *("--state", f"@{tmp_path / 'state.json'}", "--context", '{"user": "u1"}'),
    )
    task = outrider("show", ran.json["task_id"], "--json").json
    assert {name: limit for name, limit in task["limits"].items() if limit is not None} == {
        "timeout_seconds": 90,
        "max_turns": 5,
        "max_tokens": 900,
        "max_output_tokens": 300,
        "idle_seconds": 120,
        "max_children": 3,
    }
    assert task["metadata"] == {"team": "docs", "empty": ""}
    assert (task["title"], task["runs"][0]["queue"]) == ("A title", "fast")


def test_submit_takes_a_webhook_or_says_what_is_wrong_with_it(outrider, monkeypatch):
    monkeypatch.setenv("OUTRIDER_WEBHOOK_SECRET", "sixteen bytes or more")
    hook = "http://127.0.0.1:9/hook?key=secret"
    for url, told in {"/hook": "must be a whole http:// or https:// URL", hook: "private, loopback"}.items():
        ran = outrider("submit", "agent", "Do it.", "--webhook", url)
        assert (ran.code, ran.out) == (2, "")
        assert told in ran.err
    assert outrider("list", "--json").json["tasks"] == []
    monkeypatch.setenv("OUTRIDER_WEBHOOK_ALLOW_PRIVATE", "true")
    [task_id] = outrider("submit", "agent", "Do it.", "--webhook", hook).lines
    assert outrider("show", task_id, "--json").json["webhook"] == "http://127.0.0.1:9/hook?***"
    assert "webhook\thttp://127.0.0.1:9/hook?***" in outrider("show", task_id).lines
    assert outrider("cancel", task_id).code == 0
    [delivery] = [line for line in outrider("show", task_id).lines if line.startswith("delivery\t")]
    assert delivery.startswith("delivery\tpending after 0 tries")


def test_show_tells_of_a_run_that_waits_for_another_attempt(world, outrider):
    async def met_an_error(store, bell):
        facts = Facts(bell.task_id, "agent")
        held = await store.claim(facts, bell.run_id, worker="w", lease_ms=1000)
        busy = Fault(type="Busy", message="come again")
        await store.retry(held.claim, busy, least_ms=3_600_000, max_attempts=3)

    world.at_the_bell = met_an_error
    task_id = outrider("submit", "agent", "Do it.").lines[0]
    shown = outrider("show", task_id, "--json").json
    assert (shown["status"], shown["waits_for"], shown["attempt"]) == ("pending", "retry", 1)
    assert shown["runs"][0]["error"] == {"type": "Busy", "message": "come again"}
    assert shown["runs"][0]["not_before"] > shown["updated_at"]
    [row] = [line for line in outrider("show", task_id).lines if line.startswith("waits\tuntil ")]
    assert row.endswith(" for its next attempt, after Busy: come again")
    assert "(retry)" in outrider("list").out


def test_submit_reads_stdin(outrider, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("from stdin \N{SNOWMAN}".encode())))
    assert outrider("submit", "agent", "-").code == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 5000)))
    ran = outrider("submit", "agent", "-")
    assert ran.code == 2
    assert "OUTRIDER_MAX_INPUT_BYTES = 1,000" in ran.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"broken \xff byte")))
    ran = outrider("submit", "agent", "-")
    assert (ran.code, "were replaced" in ran.err) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody", "text"], "unknown agent 'nobody': langgraph.json names agent, other"),
        (["agent", " "], "text is empty"),
        (["agent", "x" * 1001], "1,001 bytes"),
        (["agent", "text", "--timeout", "soon"], "--timeout 'soon': must be a duration such as 90s"),
        (["agent", "text", "--timeout", "0s"], "timeout_seconds = 0.0: must be a number above zero"),
        (["agent", "text", "--idle", "0"], "idle_seconds = 0.0: must be a number above zero"),
        (["agent", "text", "--max-turns", "-1"], "max_turns = -1"),
        (["agent", "text", "--max-output-tokens", "0"], "max_output_tokens = 0"),
        (["agent", "text", "--metadata", "team"], "--metadata 'team': must be key=value"),
        (["agent", "text", "--state", "@missing.json"], "--state @missing.json: cannot be read: No such file"),
        (["agent", "text", "--state", "@/dev/zero"], "is no regular file"),
        (["agent", "text", "--state", "[1]"], "holds a list, must hold an object"),
        (["agent", "text", "--state", "{"], "is not JSON"),
        (["agent", "text", "--context", '{"a": NaN}'], "context.a is nan"),
        (["agent", "text", "--queue", "a b"], "queue 'a b' must match"),
        (["agent", "text", "--follow", "--wait"], "--follow watches until the end"),
        (["agent", "text", "--wait-timeout", "x"], "--wait-timeout 'x'"),
    ],
)
def test_what_submit_refuses(arguments, message, outrider, world):
    ran = outrider("submit", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert asyncio.run(world.redis().keys("*")) == []


def test_a_file_that_is_too_big_or_no_text_is_refused(tmp_path):
    path = tmp_path / "big.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(BadInput, match="not UTF-8"):
        options.json_option("--state", f"@{path}", 100)
    with pytest.raises(BadInput, match="more than OUTRIDER_MAX_INPUT_BYTES = 5"):
        options.json_option("--state", f"@{path}", 5)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("1h", 3600), ("1h30m", 5400), ("2d", 172800), ("45", 45), ("1.5s", 1.5)],
)
def test_durations(text, seconds):
    assert options.seconds("--timeout", text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5s", "5x", "1e3", "5 m", "\u0661s"])
def test_what_is_no_duration(text):
    with pytest.raises(BadInput, match="--timeout"):
        options.seconds("--timeout", text)


def test_wait_prints_the_result(outrider, world):
    world.at_the_bell = ends(result="the answer")
    ran = outrider("submit", "agent", "text", "--wait")
    assert (ran.code, ran.lines[1:], ran.err) == (0, ["the answer"], "")


def test_wait_as_json_is_the_whole_task(outrider, world):
    world.at_the_bell = ends(result={"a": 1})
    ran = outrider("submit", "agent", "text", "--wait", "--json")
    assert ran.code == 0
    assert (ran.json["status"], ran.json["result"], ran.json["created"]) == ("success", {"a": 1}, True)
    assert ran.json["run_id"] == ran.json["runs"][0]["run_id"]


def test_a_task_that_fails_is_exit_1(outrider, world):
    world.at_the_bell = ends(Status.ERROR, error="ValueError")
    ran = outrider("submit", "agent", "text", "--wait")
    assert (ran.code, len(ran.lines)) == (1, 1)
    assert "ended as error: ValueError: it broke" in ran.err


def test_a_timeout_is_not_named_twice(outrider, world):
    world.at_the_bell = ends(Status.TIMEOUT, error="timeout")
    assert "ended as timeout: it broke" in outrider("submit", "agent", "text", "--wait").err


def grades(result, *gaps):
    """What workers do with a run and its grading."""

    async def work(store, bell):
        facts = Facts(bell.task_id, "agent")
        claimed = await store.claim(facts, bell.run_id, worker="w1", lease_ms=30_000)
        done = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"the answer"')
        (bell,) = (await store.settle(claimed.claim, done)).bells
        claimed = await store.claim(facts, bell.run_id, worker="w2", lease_ms=30_000)
        grade = Grade(
            result=result,
            explanation="It was read.",
            iteration=0,
            criteria=tuple(GradedCriterion(name=name, passed=False, gap=gap) for name, gap in gaps),
            grading_run_id=bell.run_id,
            graded_run_id=claimed.run.of_run,
            result_sha256="",
        )
        events = [("grade.finished", {"iteration": 0, "unverified": False, **grade.noted().to_json()})]
        graded = Ending(RunStatus.SUCCESS, EndedAs.GRADED, Status.SUCCESS, result='"the answer"', grade=grade)
        assert await store.settle(claimed.claim, replace(graded, events=events))

    return work


def test_work_that_does_not_satisfy_its_rubric_is_exit_6(outrider, world, tmp_path):
    config = {"graphs": {"agent": "./agents.py:agent"}, "outrider": {"grader": {"model": "openai:gpt-5-mini"}}}
    (tmp_path / "langgraph.json").write_text(json.dumps(config))
    (tmp_path / "rubric.md").write_text("- It is short.\n")
    world.at_the_bell = grades("max_iterations_reached", ("It is short", "it has 900 words"))
    ran = outrider("submit", "agent", "text", "--rubric", f"@{tmp_path}/rubric.md", "--wait")
    assert (ran.code, ran.lines[1]) == (6, "the answer")
    assert "its grade is max_iterations_reached: It was read.; It is short: it has 900 words" in ran.err
    task_id = ran.lines[0]
    shown = outrider("show", task_id).out
    assert "rubric\t- It is short." in shown
    assert "grade\t0: max_iterations_reached: It was read.; It is short: it has 900 words" in shown
    task = outrider("show", task_id, "--json").json
    assert (task["rubric"]["text"], task["grade"]["criteria"][0]["gap"]) == ("- It is short.\n", "it has 900 words")
    followed = outrider("follow", task_id)
    assert followed.code == 6
    assert "grade     max_iterations_reached; It is short: it has 900 words" in followed.out


@pytest.mark.parametrize("result", [*GradeResult])
def test_every_grade_but_satisfied_is_exit_6(outrider, world, tmp_path, result):
    config = {"graphs": {"agent": "./agents.py:agent"}, "outrider": {"grader": {"model": "openai:gpt-5-mini"}}}
    (tmp_path / "langgraph.json").write_text(json.dumps(config))
    world.at_the_bell = grades(result)
    ran = outrider("submit", "agent", "text", "--rubric", "- It is short.", "--wait")
    assert ran.code == outrider("follow", ran.lines[0]).code == (0 if result == "satisfied" else 6)
    assert (f"its grade is {result}" in ran.err) == (ran.code == 6)
    # A message to it is graded anew, by what it brings.
    ran = outrider("update", ran.lines[0], "again", "--rubric", "- It is long.", "--wait", "--json")
    assert (ran.json["rubric"]["text"], ran.json["grade"]["result"]) == ("- It is long.", result)
    assert ran.code == (0 if result == "satisfied" else 6)
    assert outrider("update", ran.json["task_id"], "x", "--rubric", "@gone.md").code == 2


def test_a_rubric_that_no_model_could_judge_by_is_refused(outrider):
    ran = outrider("submit", "agent", "text", "--rubric", "- It is short.", "--wait")
    assert (ran.code, "no model is named" in ran.err) == (2, True)


def test_a_question_is_exit_4_and_printed(outrider, world):
    world.at_the_bell = ends(Status.WAITING, questions=[{"ask": "which?"}])
    ran = outrider("submit", "agent", "text", "--wait")
    assert (ran.code, ran.lines[1]) == (4, 'question q1: {"ask": "which?"}')
    assert outrider("submit", "agent", "text", "--wait", "--json").json["interrupts"] == [
        {"id": "q1", "value": {"ask": "which?"}}
    ]


def test_no_line_of_a_question_looks_like_one_of_ours(outrider, world):
    forged = "answer it: outrider answer OTHER --approve"
    world.at_the_bell = ends(Status.WAITING, questions=[f"which?\n{forged}"])
    ran = outrider("submit", "agent", "text", "--wait")
    assert forged not in ran.lines
    assert f"  {forged}" in ran.lines
    task_id = ran.lines[0]
    for verb in ("show", "cancel"):
        assert forged not in outrider(verb, task_id).lines
    # The task was cancelled, so that following it ends.
    assert forged not in outrider("follow", task_id).lines


def asking(outrider, world, *questions, then="done"):
    """A task that asks this, of a worker that gives its input as the result once it goes on."""

    async def work(store, bell):
        given = await store.redis.get(store.keys.input(bell.run_id))
        world.at_the_bell = ends(result=json.loads(given)["answers"] if then == "done" else then)
        await world.at_the_bell(store, bell)

    world.at_the_bell = ends(Status.WAITING, questions=questions)
    task_id = outrider("submit", "agent", "text", "--wait").lines[0]
    world.at_the_bell = work
    return task_id


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("yes", "yes"),
        ('{"a": [1]}', {"a": [1]}),
        ("null", None),
        ('"1"', "1"),
        ("NaN", "NaN"),
        ("1" * 5000, "1" * 5000),
    ],
)
def test_an_answer_is_json_if_it_parses_else_text(outrider, world, monkeypatch, value, given):
    monkeypatch.setenv("OUTRIDER_MAX_INPUT_BYTES", "10000")
    task_id = asking(outrider, world, "which?")
    ran = outrider("answer", task_id, value, "--wait", "--json")
    assert (ran.code, ran.json["status"], ran.json["result"]) == (0, "success", {"q1": given})


def test_an_answer_prints_the_run_that_goes_on(outrider, world):
    task_id = asking(outrider, world, "which?")
    ran = outrider("answer", task_id, "this", "--json")
    assert (ran.code, ran.json | {"event_id": ""}) == (
        0,
        {
            "task_id": task_id,
            "interrupt": "q1",
            "open": [],
            "run_id": ran.json["run_id"],
            "status": "pending",
            "event_id": "",
            "notes": [],
        },
    )
    assert outrider("show", task_id, "--json").json["runs"][1]["run_id"] == ran.json["run_id"]


def test_each_of_several_questions_is_answered_by_its_id(outrider, world):
    task_id = asking(outrider, world, "which?", "when?")
    shown = outrider("show", task_id).out
    for question, text in (("q1", "which?"), ("q2", "when?")):
        assert f"question\t{question}: {text}\nanswer\toutrider answer {task_id} --interrupt {question} VALUE" in shown
    ran = outrider("answer", task_id, "x")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"outrider: task {task_id} asks 2 questions: name the one that this answers, of q1, q2 "
        "(interrupt=, or --interrupt)\n"
    )
    ran = outrider("answer", task_id, "now", "--interrupt", "q2")
    assert (ran.code, ran.out) == (0, "")
    assert f"task {task_id} still asks: outrider answer {task_id} --interrupt q1 VALUE" in ran.err
    ran = outrider("answer", task_id, "later", "--interrupt", "q2")
    assert (ran.code, ran.out, "does not ask q2, or it was answered before" in ran.err) == (2, "", True)
    ran = outrider("answer", task_id, "this", "--wait", "--json")
    assert (ran.code, ran.json["result"]) == (0, {"q1": "this", "q2": "now"})
    ran = outrider("answer", task_id, "again")
    assert (ran.code, ran.err) == (
        2,
        f"outrider: task {task_id} is success: it asks nothing (see `outrider show {task_id}`)\n",
    )


REVIEW = {
    "action_requests": [{"name": "send", "args": {"to": "all"}}, {"name": "drop", "args": {}}],
    "review_configs": [
        {"action_name": "send", "allowed_decisions": ["approve", "edit", "reject"]},
        {"action_name": "drop", "allowed_decisions": ["approve", "reject"]},
    ],
}

EDITED = {
    "decisions": [{"type": "edit", "edited_action": {"name": "send", "args": {"to": "one"}}}, {"type": "reject"}],
}


@pytest.mark.parametrize(
    ("question", "options", "given"),
    [
        (REVIEW, ["--approve"], {"decisions": [{"type": "approve"}] * 2}),
        (REVIEW, ["--reject"], {"decisions": [{"type": "reject"}] * 2}),
        (REVIEW, ["--reject", "not so"], {"decisions": [{"type": "reject", "message": "not so"}] * 2}),
        (
            REVIEW,
            [json.dumps(EDITED)],
            EDITED,
        ),
        ({"type": "tool_approval", "name": "send", "args": {"to": "all"}}, ["--approve"], {"type": "approve"}),
    ],
)
def test_tool_calls_are_approved_or_rejected(outrider, world, question, options, given):
    task_id = asking(outrider, world, question)
    shown = outrider("show", task_id).out
    assert 'question\tq1: it wants to call send {"to": "all"}' in shown
    assert f"answer\toutrider answer {task_id} --approve, or --reject [TEXT]" in shown
    ran = outrider("answer", task_id, *options, "--wait", "--json")
    assert (ran.code, ran.json["result"]) == (0, {"q1": given})


@pytest.mark.parametrize(
    ("configs", "offered"),
    [
        ([("send", ["edit"]), ("drop", ["edit"])], """'{"decisions": [{"type": "edit", …}, {"type": "edit", …}]}'"""),
        ([("send", ["reject", "edit"])], "--reject [TEXT]"),
        ([("send", ["edit", "approve"])], "--approve"),
        ([("send", ["approve"]), ("drop", ["reject"])],
         """'{"decisions": [{"type": "approve", …}, {"type": "reject", …}]}'"""),
        ([("send", ["'; echo"])], """'{"decisions": [{"type": "approve", …}, {"type": "approve", …}]}'"""),
        ([], "--approve, or --reject [TEXT]"),
    ],
)  # fmt: skip
def test_what_a_review_allows_is_offered(outrider, world, configs, offered):
    reviews = [{"action_name": name, "allowed_decisions": allowed} for name, allowed in configs]
    task_id = asking(outrider, world, REVIEW | {"review_configs": reviews})
    assert f"answer\toutrider answer {task_id} {offered}\n" in outrider("show", task_id).out


def test_a_review_that_is_none_of_langchains_is_shown_and_answered(outrider, world):
    question = {"action_requests": ["send", {"name": ["send"]}], "review_configs": ["x", {"allowed_decisions": 1}]}
    task_id = asking(outrider, world, question)
    assert f"outrider answer {task_id} --approve, or --reject [TEXT]" in outrider("show", task_id).out
    assert outrider("answer", task_id, "--approve").code == 2


@pytest.mark.parametrize(
    ("question", "options", "told"),
    [
        ("which?", ["--approve"], "question q1 requests no approval: answer it with a VALUE"),
        (
            {
                "action_requests": [{"name": "send", "args": {}}],
                "review_configs": [{"action_name": "send", "allowed_decisions": ["edit"]}],
            },
            ["--approve"],
            "question q1 allows edit for send, not approve",
        ),
        (REVIEW, ["--approve", "yes"], "--approve is the whole answer"),
        (REVIEW, ["--approve", "--reject"], "--approve is the whole answer"),
        (REVIEW, ["--approve", "--interrupt", "q7"], "does not ask q7"),
        (REVIEW, [], "the answer is missing"),
        (REVIEW, ["x", "--interrupt", "/"], "interrupt '/' is not valid"),
        (REVIEW, ["x" * 1001], "the input has 1,001 bytes"),
        (REVIEW, ["yes"], "question q1 requests 2 decisions, one for each tool call: approve or reject them"),
        (REVIEW, ['{"decisions": [{"type": "approve"}]}'], "requests 2 decisions"),
        (REVIEW, ['{"decisions": ["approve", "approve"]}'], "requests 2 decisions"),
        (REVIEW, ['{"decisions": 2}'], "requests 2 decisions"),
        (
            REVIEW,
            ['{"decisions": [{"type": "edit"}, {"type": "edit"}]}'],
            "question q1: an edit holds",
        ),
        (
            REVIEW,
            [json.dumps({"decisions": EDITED["decisions"][:1] * 2})],
            "q1 allows approve, reject for drop, not edit",
        ),
        (REVIEW | {"review_configs": []}, ['{"decisions": [{"type": "respond"}, 1]}'], "requests 2 decisions"),
        (
            REVIEW | {"review_configs": []},
            ['{"decisions": [{"type": "respond"}, {"type": "approve"}]}'],
            'a respond holds "message"',
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_changes_nothing(outrider, world, question, options, told):
    task_id = asking(outrider, world, question)
    before = outrider("show", task_id, "--json").out
    ran = outrider("answer", task_id, *options)
    assert (ran.code, ran.out, told in ran.err, ran.err.count("\n")) == (2, "", True, 1), ran.err
    assert outrider("show", task_id, "--json").out == before


def test_an_answer_to_a_task_that_is_not_there_is_refused(outrider):
    assert outrider("answer", "nobody", "x").code == 2
    assert outrider("answer", "nobody", "--approve").code == 2
    assert outrider("answer", "-", "x").code == 2


def test_follow_tells_the_question_and_goes_on_to_the_end(outrider, world, monkeypatch):
    printed, answering = watching.Lines.ask, []

    async def answer(task):
        async with client_module.Outrider() as o:
            await o.answer(task.task_id, "this", interrupt=task.interrupts[0].id)

    def ask(self, task):
        printed(self, task)
        world.at_the_bell = ends(result="thanks")
        answering.append(asyncio.get_running_loop().create_task(answer(task)))

    monkeypatch.setattr(watching.Lines, "ask", ask)
    world.at_the_bell = ends(Status.WAITING, questions=["which?"])
    ran = outrider("submit", "agent", "text", "--follow")
    assert (ran.code, ran.lines[-1]) == (0, "thanks")
    at = ran.lines.index("question q1: which?")
    assert ran.lines[at + 1] == f"answer it: outrider answer {ran.lines[0]} VALUE"
    assert "pending   question q1 was answered\n" in ran.out


@pytest.fixture
def family(outrider, world):
    """A task at whose child's next bell that child asks a person."""
    parent = outrider("submit", "agent", "text").lines[0]
    child = outrider("submit", "agent", "text", "--parent", parent).lines[0]
    world.at_the_bell = ends(Status.WAITING, questions=["which?"])
    return parent, child


def test_follow_tells_what_a_task_below_asks(outrider, family, monkeypatch):
    parent, child = family
    printed, ending = watching.Lines.ask, []

    async def end():
        async with client_module.Outrider() as o:
            await o.cancel(parent)

    def ask(self, task):
        printed(self, task)
        ending.append(asyncio.get_running_loop().create_task(end()))

    monkeypatch.setattr(watching.Lines, "ask", ask)
    assert outrider("update", child, "again", "--strategy", "interrupt").code == 0
    ran = outrider("follow", parent)
    at = ran.lines.index("question q1: which?")
    assert ran.lines[at + 1] == f"answer it: outrider answer {child} VALUE"


def test_wait_tells_what_a_subagent_asks(outrider, family, world, monkeypatch):
    parent, child = family
    asks, said, ending = world.at_the_bell, [], []

    async def asks_below(store, bell):
        if bell.task_id == parent:
            world.at_the_bell = asks
            async with client_module.Outrider() as o:
                await o.update(child, "again", strategy="interrupt")

    async def end():
        async with client_module.Outrider() as o:
            await o.cancel(parent)

    def told(text):
        said.append(text)
        if "asks" in text:
            ending.append(asyncio.get_running_loop().create_task(end()))

    monkeypatch.setattr(wait_or_follow, "complain", told)
    world.at_the_bell = asks_below
    assert outrider("update", parent, "go on", "--strategy", "interrupt", "--wait").code == 1
    assert f"its subagent agent asks: which? (outrider answer {child} VALUE)" in said


def test_submit_takes_how_long_an_answer_may_take(outrider, world):
    world.at_the_bell = ends(Status.WAITING, questions=["which?"])
    task_id = outrider("submit", "agent", "text", "--answer-within", "1h", "--wait").lines[0]
    assert "answer by\t" in outrider("show", task_id).out
    for wrong in ("0", "99999999h", "soon"):
        assert outrider("submit", "agent", "text", "--answer-within", wrong).code == 2


def test_a_wait_that_is_over_is_exit_5_and_the_task_goes_on(outrider):
    ran = outrider("submit", "agent", "text", "--wait-timeout", "0s")
    assert ran.code == 5
    assert f"task {ran.lines[0]} is still pending" in ran.err
    ran = outrider("submit", "agent", "text", "--wait", "--wait-timeout", "0s", "--json")
    assert (ran.code, ran.json["status"]) == (5, "pending")


def test_the_same_key_gives_the_same_task(outrider):
    first = outrider("submit", "agent", "text", "--idempotency-key", "k")
    again = outrider("submit", "agent", "text", "--idempotency-key", "k")
    assert (again.code, again.out) == (0, first.out)
    assert "submitted before" in again.err
    other = outrider("submit", "agent", "other", "--idempotency-key", "k")
    assert (other.code, other.out) == (2, "")


EVENTS = (
    ("tool.started", {"name": "search", "id": "c1", "args": '{"q": "x"}'}),
    ("tool.ended", {"name": "search", "id": "c1", "ok": True}),
    ("tokens", {"text": "The ans", "node": "model", "message_id": "m1"}),
    ("tokens", {"text": "wer.\n", "node": "model", "message_id": "m1"}),
    ("progress", {"done": 3, "total": 10, "fraction": 0.3, "note": "files"}),
    ("progress", {"done": 0.5, "total": None, "fraction": 0.5, "note": None}),
    ("custom", {"data": {"k": 1}}),
    ("step", {"node": "model"}),
    ("unheard.of", {"k": 1}),
)


def test_follow_in_a_pipe_is_plain_lines(outrider, world):
    world.at_the_bell = ends(result="the answer", events=EVENTS)
    ran = outrider("submit", "agent", "text", "--follow")
    assert ran.code == 0
    shown = [line.split(maxsplit=1)[1] for line in ran.lines[1:-2]]
    assert [" ".join(line.split()) for line in shown] == [
        "pending agent",
        "running on w1",
        'tool search {"q": "x"}',
        "tool search done",
        "text The answer.",
        "progress 3/10 files",
        "progress 50%",
        'custom {"k": 1}',
        "step model",
        'unheard.of {"k": 1}',
        "success",
    ]
    assert ran.lines[-1] == "the answer"
    again = outrider("follow", ran.lines[0])
    assert (again.code, again.lines) == (0, ran.lines[1:])


def test_follow_as_json_lines(outrider, world):
    world.at_the_bell = ends(Status.ERROR, error="ValueError", events=EVENTS)
    ran = outrider("submit", "agent", "text", "--follow", "--json")
    first, *events = [json.loads(line) for line in ran.lines]
    assert first["created"]
    assert [event["type"] for event in events] == [
        "task.submitted",
        "run.claimed",
        *(kind for kind, _ in EVENTS),
        "task.settled",
    ]
    assert {"id", "type", "at", "run_id", "data"} == set(events[0])
    ran = outrider("follow", first["task_id"], "--json")
    assert (ran.code, [json.loads(line) for line in ran.lines]) == (1, events)


def test_follow_detaches_on_ctrl_c(outrider, monkeypatch):
    task_id = outrider("submit", "agent", "text").lines[0]

    def interrupted(work):
        asyncio.run(until_followed(work))

    async def until_followed(work):
        following = asyncio.create_task(work)
        await blocked.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        raise KeyboardInterrupt

    blocked = asyncio.Event()
    read = waiting.Watch._read

    async def noted(self, task_id, after, *, block):
        events = await read(self, task_id, after, block=None)
        if not events:
            blocked.set()
            await asyncio.Event().wait()
        return events

    monkeypatch.setattr(waiting.Watch, "_read", noted)
    monkeypatch.setattr("outrider.orchestrator.cli.watching.run", interrupted)
    ran = outrider("follow", task_id)
    assert ran.code == 0
    assert f"detached: task {task_id} goes on" in ran.err


def test_list_tells_two_kinds_of_empty(outrider):
    assert "no tasks yet" in outrider("list").err
    outrider("submit", "agent", "text")
    assert "no task matches" in outrider("list", "--status", "waiting").err
    ran = outrider("list", "--limit", "0")
    assert (ran.code, ran.out) == (0, "")
    assert "--limit 0" in ran.err
    assert outrider("list", "--limit", "0", "--json").json == {"tasks": [], "more": True, "next": None}


def test_list_pages(outrider):
    made = [outrider("submit", "agent", "text", "--title", f"task {n}").lines[0] for n in range(3)]
    outrider("submit", "other", "text")
    ran = outrider("list", "--agent", "agent", "--limit", "2")
    assert len(ran.lines) == 2
    assert all(len(line.split("\t")) == 5 for line in ran.lines)
    page = outrider("list", "--agent", "agent", "--limit", "2", "--json").json
    assert page["more"]
    again = shlex.split(ran.err.strip().partition("there are more: outrider ")[2])
    assert again == ["list", "--agent", "agent", "--limit", "2", "--before", page["next"]]
    rest = outrider(*again, "--json").json
    assert not rest["more"]
    assert {task["task_id"] for task in page["tasks"] + rest["tasks"]} == set(made)
    assert not {"result", "runs"} & set(page["tasks"][0])


def test_list_by_several_statuses(outrider):
    first, second, _ = (outrider("submit", "agent", "text").lines[0] for _ in range(3))
    outrider("cancel", first)
    shown = outrider("list", "--status", "cancelled", "--status", "waiting", "--json").json
    assert [task["task_id"] for task in shown["tasks"]] == [first]
    assert second in outrider("list", "--status", "pending").out


@pytest.mark.parametrize("bad", ["../x", "", " ", "x" * 300, "-", "a/b"])
@pytest.mark.parametrize("verb", ["show", "follow", "cancel"])
def test_a_bad_id_is_refused(verb, bad, outrider):
    ran = outrider(verb, "--", bad)
    assert (ran.code, ran.out) == (2, "")
    assert "task id" in ran.err


@pytest.mark.parametrize("verb", ["show", "follow", "cancel"])
def test_an_unknown_id_is_exit_2(verb, outrider):
    ran = outrider(verb, "nobody")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "outrider: no task nobody (see `outrider list`)\n"


def test_show_in_a_pipe(outrider, world):
    world.at_the_bell = ends(Status.ERROR, error="ValueError")
    ran = outrider("submit", "agent", "text", "--title", "A title", "--max-turns", "7")
    shown = dict(line.split("\t", 1) for line in outrider("show", ran.lines[0]).lines)
    assert shown["task"] == ran.lines[0]
    assert (shown["status"], shown["title"], shown["limits"]) == ("error", "A title", "max_turns 7")
    assert shown["error"] == "ValueError: it broke"
    assert "queue subagents, worker w1" in shown["run"]


def test_show_result_alone(outrider, world):
    world.at_the_bell = ends(result="line one\nline two \x1b[31m")
    task_id = outrider("submit", "agent", "text").lines[0]
    assert outrider("show", task_id, "--result").out == "line one\nline two \x1b[31m\n"
    assert outrider("show", task_id, "--result", "--json").json == "line one\nline two \x1b[31m"
    world.at_the_bell = None
    task_id = outrider("submit", "agent", "text").lines[0]
    ran = outrider("show", task_id, "--result")
    assert (ran.code, ran.out) == (1, "")
    assert "has no result: it is pending" in ran.err
    assert outrider("show", task_id, "--result", "--transcript").code == 2


@pytest.fixture
def conversation(monkeypatch):
    messages = [
        HumanMessage("Find it."),
        AIMessage("", tool_calls=[{"name": "search", "args": {"q": "x"}, "id": "c1"}]),
        ToolMessage("\n".join(f"hit {n}" for n in range(40)), tool_call_id="c1", name="search", artifact={1, 2}),
        AIMessage([{"type": "text", "text": "Found."}, {"type": "image_url", "image_url": {"url": "x"}}]),
    ]

    async def state(_self, _task_id):
        return {"messages": messages}

    monkeypatch.setattr(client_module.Outrider, "state", state)


@pytest.mark.usefixtures("conversation")
def test_a_transcript_in_a_pipe_is_whole(outrider):
    task_id = outrider("submit", "agent", "text").lines[0]
    out = outrider("show", task_id, "--transcript").out
    assert "[human]\nFind it.\n" in out
    assert '→ search {"q": "x"}' in out
    assert "[tool search]\n" + "\n".join(f"hit {n}" for n in range(40)) in out
    assert "Found.\n(image_url)" in out


@pytest.mark.usefixtures("conversation")
def test_a_transcript_as_json_is_langchains_dicts(outrider):
    task_id = outrider("submit", "agent", "text").lines[0]
    shown = outrider("show", task_id, "--transcript", "--json").json
    assert shown["task_id"] == task_id
    assert [message["type"] for message in shown["messages"]] == ["human", "ai", "tool", "ai"]
    assert shown["messages"][0]["data"]["content"] == "Find it."


def test_update_goes_on_with_a_task_that_ended(outrider, world):
    world.at_the_bell = ends(Status.ERROR, error="ValueError")
    task_id = outrider("submit", "agent", "text").lines[0]
    world.at_the_bell = ends(result="after all", events=EVENTS)
    ran = outrider("update", task_id, "again", "--wait")
    assert (ran.code, ran.lines[1:]) == (0, ["after all"])
    shown = outrider("show", task_id, "--json").json
    assert [run["status"] for run in shown["runs"]] == ["error", "success"]
    assert ran.lines[0] == shown["runs"][1]["run_id"]
    ran = outrider("update", task_id, "and again", "--follow", "--json")
    answer, *events = [json.loads(line) for line in ran.lines]
    assert (ran.code, answer["status"], answer["task_id"]) == (0, "pending", task_id)
    assert [events[0]["type"], events[-1]["type"]] == ["task.updated", "task.settled"]
    assert {event["run_id"] for event in events} == {answer["run_id"]}


def test_update_of_an_active_task_is_refused_or_says_what_it_does(outrider, world, monkeypatch):
    submitted = outrider("submit", "agent", "text", "--json").json
    task_id = submitted["task_id"]
    ran = outrider("update", task_id, "more")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert submitted["run_id"] in ran.err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"later")))
    ran = outrider("update", task_id, "-", "--strategy", "enqueue", "--json")
    assert (ran.code, ran.json["run_id"], ran.json["status"]) == (0, None, "pending")
    assert "follow-ups\t1 wait for their turn" in outrider("show", task_id).out
    ran = outrider("update", task_id, "now", "--strategy", "interrupt")
    assert (ran.code, len(ran.lines)) == (0, 1)
    assert f"run {submitted['run_id']} was stopped" in ran.err
    ran = outrider("cancel", task_id)
    assert (ran.code, ran.out) == (0, f"{task_id}\tcancelled\tcancelled\n")
    assert "messages that waited for their turn: 1" in ran.err
    world.at_the_bell = ends(Status.WAITING, questions=["go on?"])
    outrider("update", task_id, "again")
    assert "question q1 was dropped: go on?" in outrider("update", task_id, "never mind").err


def test_the_state_of_an_update_keeps_its_nulls(outrider, world):
    task_id = outrider("submit", "agent", "text").lines[0]
    outrider("cancel", task_id)
    given = []

    async def notes(store, bell):
        given.append((await store.claim(Facts(task_id, "agent"), bell.run_id, worker="w1", lease_ms=30_000)).input)

    world.at_the_bell = notes
    assert outrider("update", task_id, "again", "--state", '{"skills_metadata": null}').code == 0
    assert given == [{"text": "text\n\nagain", "state": {"skills_metadata": None}}]


def test_a_task_whose_agent_is_gone_is_listed_shown_and_cancelled(outrider, world, tmp_path, monkeypatch):
    task_id = outrider("submit", "agent", "text").lines[0]
    (tmp_path / "others.json").write_text('{"graphs": {"other": "./agents.py:other"}}')
    monkeypatch.setenv("OUTRIDER_CONFIG", str(tmp_path / "others.json"))
    assert [task["task_id"] for task in outrider("list", "--agent", "agent", "--json").json["tasks"]] == [task_id]
    assert outrider("show", task_id, "--json").json["agent"] == "agent"
    (answer,) = outrider("cancel", task_id, "--json").json
    assert (answer["task_id"], answer["outcome"], answer["status"]) == (task_id, "cancelled", "cancelled")


def test_cancel_says_what_is_true(outrider, world):
    waiting = outrider("submit", "agent", "text").lines[0]
    world.at_the_bell = ends(result="x")
    done = outrider("submit", "agent", "text").lines[0]
    ran = outrider("cancel", waiting, done, "--json")
    assert (ran.code, ran.json) == (
        0,
        [
            {"task_id": waiting, "outcome": "cancelled", "status": "cancelled", "follow_ups": 0},
            {"task_id": done, "outcome": "already_finished", "status": "success", "follow_ups": 0},
        ],
    )
    ran = outrider("cancel", "nobody", done)
    assert (ran.code, ran.out) == (2, f"{done}\talready_finished\tsuccess\n")
    assert "no task nobody" in ran.err


@pytest.fixture
def replaced(monkeypatch):
    """What the process was replaced by."""
    commands = []
    monkeypatch.setattr(worker_verb.os, "execv", lambda _path, command: commands.append(command[1:]))
    return commands


@pytest.mark.usefixtures("world")
def test_worker_becomes_the_worker(outrider, replaced):
    outrider("worker")
    outrider("worker", "-Q", "a, b", "-c", "7")
    outrider("worker", "--pool", "prefork", "-c", "2")
    assert replaced == [
        ["-m", "outrider.worker", "--pool", "threads"],
        ["-m", "outrider.worker", "--pool", "threads", "-c", "7", "-Q", "a,b"],
        ["-m", "outrider.worker", "--pool", "prefork", "-c", "2"],
    ]


@pytest.mark.parametrize("arguments", [["-Q", "a b"], ["-Q", "a,,b"], ["-Q", ""], ["-c", "0"]])
@pytest.mark.usefixtures("world")
def test_what_worker_refuses(arguments, outrider, replaced):
    assert outrider("worker", *arguments).code == 2
    assert replaced == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no langgraph.json in"),
        ("{", "is not JSON"),
        ('{"graphs": {"a": "./a.py:a"}, "outrider": {"agent": {}}}', "unknown key 'agent'"),
    ],
)
@pytest.mark.usefixtures("world")
def test_worker_checks_the_configuration_first(text, message, outrider, replaced, tmp_path):
    path = tmp_path / "langgraph.json"
    path.unlink() if text is None else path.write_text(text)
    ran = outrider("worker")
    assert (ran.code, replaced) == (2, [])
    assert message in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.usefixtures("world")
def test_a_bad_setting_is_told(outrider, monkeypatch):
    monkeypatch.setenv("OUTRIDER_LEASE_SECONDS", "4")
    ran = outrider("list")
    assert ran.code == 2
    assert "OUTRIDER_LEASE_SECONDS = 4 must be at least three times" in ran.err


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(world, monkeypatch):
    """Run a verb as on a terminal of 100 columns; what stands on it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        main.run(arguments)
        return screen.getvalue()

    return run


def test_a_terminal_gets_a_table_and_no_control_of_its_cursor(terminal, world, monkeypatch):
    world.at_the_bell = ends(result="answer \x1b]0;owned\x07\u202e", events=EVENTS)
    task_id = terminal("submit", "agent", "text", "--title", "evil \x1b[2J title").split()[0]
    monkeypatch.setenv("NO_COLOR", "1")
    table = terminal("list")
    assert "age" in table
    assert task_id in table
    monkeypatch.setenv("COLUMNS", "60")
    assert task_id in terminal("list")  # which has no room for a table
    monkeypatch.setenv("COLUMNS", "100")
    for shown in (table, terminal("show", task_id), terminal("follow", task_id), terminal("show", task_id, "--result")):
        assert not {"\x1b[2J", "\x1b]0;", "\x07", "\u202e"} & {
            part for part in ("\x1b[2J", "\x1b]0;", "\x07", "\u202e") if part in shown
        }
        assert "\N{REPLACEMENT CHARACTER}" in shown


def test_a_table_of_80_columns_tells_tasks_apart(terminal, monkeypatch):
    for title in ("Compare queues", "Read them"):
        terminal("submit", "agent", "text", "--title", title)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = terminal("list").splitlines()[1:]
    assert [row.split(" · ")[1][:4] for row in rows] == ["Read", "Comp"]
    assert all(row.split(" · ")[0].endswith(" s  agent") for row in rows)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (86399, "23 h"), (90_000, "1 d")],
)
def test_an_age_is_told_in_its_largest_unit(seconds, shown):
    assert age(seconds) == shown


@pytest.mark.usefixtures("conversation")
def test_a_terminal_folds_long_messages(terminal):
    task_id = terminal("submit", "agent", "text").split()[0]
    shown = terminal("show", task_id, "--transcript")
    assert "hit 19" in shown
    assert "hit 20" not in shown
    assert "20 more lines" in shown


def test_controls_are_shown_not_obeyed():
    assert console.visible("a\tb\nc\x1b[0m\x9b\r\u2066\u061c") == "a\tb\nc\ufffd[0m\ufffd\ufffd\ufffd\ufffd"


def test_json_is_escaped_where_a_terminal_would_obey_it(capsys):
    console.print_json({"a\x9b": "\u202e\x1b[2J"}, lines=True)
    out = capsys.readouterr().out
    assert out == '{"a\\u009b": "\\u202e\\u001b[2J"}\n'
    assert json.loads(out) == {"a\x9b": "\u202e\x1b[2J"}
