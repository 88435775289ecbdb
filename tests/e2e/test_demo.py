"""`outrider demo` from start to end, and that nothing of it is left, however it ends."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from openai_stub import serving
from research_tree import model

CLI = (sys.executable, "-c", "from outrider.orchestrator.cli.main import main; main()")
HANDBOOK = """# Releases

A release is cut on the first Tuesday of a month by the release manager.

# Holidays

Every employee has thirty days of paid holidays.
"""


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "handbook"
    folder.mkdir()
    (folder / "handbook.md").write_text(HANDBOOK)
    return folder


@pytest.fixture
def env(tmp_path):
    """Processes that are started with it are known by it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    mine = ("OUTRIDER_", "CELERY_", "REDIS_URL")
    return {name: value for name, value in os.environ.items() if not name.startswith(mine)} | {"TMPDIR": str(folder)}


def left_over(env):
    """Pids of processes that were started with `env`, or work in its folder: Redis writes over its environment."""
    mark = f"TMPDIR={env['TMPDIR']}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark in (path / "environ").read_bytes().split(b"\0")
            if marked or (path / "cwd").readlink().is_relative_to(env["TMPDIR"]):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def demo(env, *arguments):
    return subprocess.run(
        [*CLI, "demo", *arguments], env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_a_lead_and_its_analysts_answer_with_citations_that_stand_there(docs, env):
    done = demo(env, "--docs", str(docs), "--question", "When is a release cut?", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert set(shown) == {"task_id", "report", "citations", "tasks", "wakes"}
    lead, *analysts = shown["tasks"]
    assert (lead["task_id"], lead["agent"], lead["parent_id"]) == (shown["task_id"], "lead", None)
    assert analysts
    assert {(one["agent"], one["parent_id"]) for one in analysts} == {("analyst", lead["task_id"])}
    assert {one["status"] for one in shown["tasks"]} == {"success"}
    *agents, grade = lead["runs"]
    # Analysts may be quicker than the lead, which then hears of them before it has to rest.
    assert (agents[0]["ended_as"], agents[-1]["ended_as"]) == ("paused", "finished")
    assert shown["wakes"] == len(agents) - 2
    assert (grade["kind"], grade["grade"]["result"], lead["grade"]["result"]) == ("grade", "satisfied", "satisfied")
    assert all(criterion["by"] == "checks" for criterion in lead["grade"]["criteria"])
    assert done.stderr == "outrider: stdin is no terminal: the leads' plans of searches are approved (as by --yes)\n"
    [citation, *_] = shown["citations"]
    assert citation["file"] == "handbook.md"
    first = int(citation["line"].split("-")[0])
    assert citation["quote"] in HANDBOOK.splitlines()[first - 1]
    assert "first Tuesday" in shown["report"]
    assert (left_over(env), list(Path(env["TMPDIR"]).iterdir())) == ([], [])


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("\n", True),
        ("y\n", True),
        ("No\n", False),
        ("what?\nn\n", False),
        ("n o\ny\n", True),
        ("\x04", False),
        (None, True),
    ],
)
def test_a_person_approves_what_the_lead_searches_for(docs, env, typed, found):
    ours, theirs = pty.openpty()
    try:
        options = ("--docs", str(docs), "--question", "When is a release cut?", "--json")
        command = [*CLI, "demo", *options, *([] if typed else ["--yes"])]
        with subprocess.Popen(
            command, env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            if typed:
                said = ""
                while not said.endswith("Approve? [Y/n] "):
                    said += process.stderr.read(1)
                assert "The lead wants to search for:\n  " in said
                os.write(ours, typed.encode())
            out, err = process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)
    asked_again = (typed or "").removesuffix("\n").count("\n")
    assert (process.returncode, err) == (0, "Approve? [Y/n] " * asked_again)
    shown = json.loads(out)
    assert bool(shown["citations"]) == found
    assert len(shown["tasks"]) == 1 or found, "nothing was handed out"


def test_the_project_s_own_documents_answer_its_questions(env):
    """In a pipe it tells in plain lines what becomes of each task."""
    done = demo(env, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.endswith("resting   no worker is held until its subagents report") for line in lines)
    for number in "123":
        assert f"{number}     lead     success" in lines
        assert f"{number}.1   analyst  success" in lines
    assert sum(line.startswith("## ") for line in lines) == 3
    claims = [line for line in lines if line.startswith("- ")]
    assert len(claims) >= 3
    assert lines[-1] == f"{len(claims)} citations; the quotes of {len(claims)} stand in the documents word for word."


def test_what_the_documents_do_not_answer_is_said(docs, env, redis_server):
    """On a Redis that the environment names, in a namespace of its own that goes with it."""
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        before = set(client.keys("*"))
        named = env | {"OUTRIDER_REDIS_URL": redis_server.url, "CELERY_BROKER_URL": "amqp://127.0.0.1:1//"}
        done = demo(named, "--docs", str(docs), "--question", "What is the capital of Mongolia?")
        assert done.returncode == 0, done.stderr
        assert "do not answer" in done.stdout
        assert done.stdout.endswith("\n0 citations.\n")
        assert "--model PROVIDER:MODEL" in done.stderr
        assert {key for key in set(client.keys("*")) - before if key.startswith(b"{demo-")} == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--docs", "missing-folder"], "give --docs an existing one"),
        (["--docs", "{empty}"], "has no .md, .txt, .rst or .py file"),
        (["--docs", "{docs}", "--question", " "], "--question is empty"),
        (["--docs", "{docs}"], "Give a --question"),
    ],
)
def test_bad_use_is_exit_2(arguments, message, docs, env, tmp_path):
    (tmp_path / "empty").mkdir()
    done = demo(env, *(text.format(empty=tmp_path / "empty", docs=docs) for text in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_provider_s_model_works_with_the_same_agents(docs, env, monkeypatch):
    pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    claim = '- Tuesdays. [handbook.md:3] "A release is cut on the first Tuesday of a month"'
    question = "When is a release cut?"
    with serving(model(question, claim), monkeypatch) as server:
        named = {name: os.environ[name] for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "NO_PROXY")}
        done = demo(env | named, "--docs", str(docs), "--question", question, "--model", "openai:stub", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["report"].split("\n")[2] == claim
    assert len(shown["citations"]) == 1, "what its report invented is left out"
    assert [one["agent"] for one in shown["tasks"]] == ["lead", "analyst"]
    lead = shown["tasks"][0]
    assert {criterion["by"] for criterion in lead["grade"]["criteria"]} == {"checks", "model"}
    assert (lead["grade"]["result"], lead["usage"]["grader"]["total_tokens"]) == ("satisfied", 10)
    used = sum(one["usage"]["total_tokens"] for one in shown["tasks"])
    assert used + 10 == 10 * len(server.asked)


@pytest.mark.parametrize("model", ["nonsense:model", "stub"])
def test_a_model_that_cannot_be_had_is_one_line_before_anything_starts(docs, env, model):
    done = demo(env, "--docs", str(docs), "--question", "When?", "--model", model, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"outrider: --model {model}: ")
    assert done.stderr.count("\n") == 1


def test_a_model_that_refuses_is_exit_1_and_the_log_is_shown(docs, env, monkeypatch):
    pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    with serving(lambda _: None, monkeypatch):
        named = {name: os.environ[name] for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "NO_PROXY")}
        done = demo(env | named, "--docs", str(docs), "--question", "When?", "--model", "openai:stub", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["tasks"][0]["error"]["type"].endswith("AuthenticationError")
    assert "ended as error" in done.stderr
    assert "Traceback" not in done.stderr.split("the log of the demo's workers")[0]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc, and ties children to their parent")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_running(how, docs, env):
    with subprocess.Popen(
        [*CLI, "demo", "--docs", str(docs), "--question", "When is a release cut?"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert "pending" in running.stdout.readline()
        # Its two workers, its Redis, itself.
        assert len(left_over(env)) >= 4
        running.send_signal(how)
        _, said = running.communicate()
    expected = {signal.SIGINT: 130, signal.SIGTERM: 128 + 15, signal.SIGKILL: -9}
    assert running.returncode == expected[how]
    assert "Traceback" not in said
    for pid in left_over(env):
        wait_for_the_end(pid)
    assert left_over(env) == []
    if how is not signal.SIGKILL:
        assert list(Path(env["TMPDIR"]).iterdir()) == []


def wait_for_the_end(pid):
    """Wait until a process that is not our child has ended."""
    import select

    try:
        with os.fdopen(os.pidfd_open(pid), "rb") as handle:
            assert select.select([handle], [], [], 30)[0], f"process {pid} lives on"
    except ProcessLookupError:
        return
