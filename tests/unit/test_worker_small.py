"""The small parts of a worker: outcomes, control, jobs in threads, logs, upstream's faults."""

import asyncio
import io
import json
import logging
import math
import re
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pytest
import structlog

from outrider.shared import store
from outrider.shared.context import Claim
from outrider.shared.errors import BadInput
from outrider.shared.events import EVENTS
from outrider.shared.limits import Usage
from outrider.shared.log import set_up_logging
from outrider.shared.progress import progress
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.transitions import Facts
from outrider.worker.control import Control, Held, Stop
from outrider.worker.emitter import custom
from outrider.worker.executor import JobExecutor, Jobs, current_jobs
from outrider.worker.outcomes import Failed, Finished, Paused, TimedOut, ending


@pytest.mark.parametrize(
    ("outcome", "run_status", "ended_as", "status", "phase"),
    [
        (Finished('"done"'), RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, None),
        (Paused(()), RunStatus.SUCCESS, EndedAs.PAUSED, Status.WAITING, Phase.ASKING),
        (Failed("ValueError", "text"), RunStatus.ERROR, EndedAs.FAILED, Status.ERROR, None),
        (TimedOut(1.5), RunStatus.TIMEOUT, EndedAs.TIMED_OUT, Status.TIMEOUT, None),
    ],
)
def test_what_an_outcome_means_for_the_record(outcome, run_status, ended_as, status, phase):
    made = ending(outcome, Usage(turns=1))
    assert (made.run_status, made.ended_as, made.task_status, made.task_phase) == (run_status, ended_as, status, phase)
    assert made.usage.turns == 1


def test_an_error_text_is_safe_and_bounded():
    failed = Failed.by(ValueError("\ud835 \x00" + "x" * 500_000))
    assert failed.type == "ValueError"
    assert failed.message.startswith("\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}xx")
    assert len(failed.message) == 10_000
    assert failed.message.endswith("(cut: 500,003 characters in all)")


def test_the_name_of_an_errors_type_is_one_short_line():
    forged = type("Boom\nstatus\tsuccess " + "x" * 500_000, (Exception,), {})
    name = Failed.by(forged()).type
    assert (name[:21], len(name)) == ("Boom status success x", 200)

    class Nameless(type):
        @property
        def __name__(cls):
            raise ValueError

    assert Failed.by(Nameless("Boom", (Exception,), {})("text")) == Failed("Exception", "text")


async def test_the_first_reason_to_stop_stands():
    control = Control("run", asyncio.get_running_loop())
    work = asyncio.create_task(asyncio.Event().wait())
    control.work(work)
    await asyncio.to_thread(control.stop, Stop.TIMED_OUT)
    control.stop(Stop.CANCELLED)
    await asyncio.wait([work])
    assert work.cancelled()
    assert control.reason is Stop.TIMED_OUT


@pytest.mark.parametrize(("reason", "stale"), [(Stop.CANCELLED, True), (Stop.TIMED_OUT, False)])
async def test_only_what_was_cancelled_writes_no_more(reason, stale):
    control, claim = Control("run", asyncio.get_running_loop()), Claim(Facts("task", "agent"), "run", 1, "token")
    control.held(claim)
    control.stop(reason)
    await control.stopped
    assert (control.reason, claim.stale) == (reason, stale)


@pytest.mark.parametrize("over", [True, False])
async def test_a_reason_that_comes_too_late_is_none(over):
    control = Control("run", asyncio.get_running_loop())
    if over:
        control.over()
    else:
        work = asyncio.create_task(asyncio.sleep(0, "done"))
        control.work(work)
        await work
    control._stop(Stop.CANCELLED)
    assert control.reason is None


async def test_a_run_that_comes_during_a_drain_is_drained():
    held = Held()
    loop = asyncio.get_running_loop()
    before, after = Control("before", loop), Control("after", loop)
    with held.holding(before):
        held.drain()
        with held.holding(after):
            assert before.drain.drain_requested
            assert after.drain.drain_requested
    assert held.claims() == []


async def test_a_run_knows_when_its_jobs_have_ended():
    loop = asyncio.get_running_loop()
    jobs, opened = Jobs(loop), threading.Event()
    with JobExecutor(1) as executor:
        token = current_jobs.set(jobs)
        job = loop.run_in_executor(executor, opened.wait)
        queued = loop.run_in_executor(executor, opened.wait)
        current_jobs.reset(token)
        job.cancel()  # what awaits it goes, the thread stays
        ended = asyncio.create_task(jobs.ended())
        await asyncio.sleep(0)
        assert not ended.done()
        opened.set()
        await ended
        assert queued.done() or not jobs._open


def test_progress_outside_a_run_does_nothing():
    progress(1, 2, "half")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ((math.nan,), "done is nan"),
        ((1, -math.inf), "total is -inf"),
        ((Decimal("NaN"),), "done is of type Decimal"),
        ((10**400,), "done is of type int"),
        (("3", 4), "done is of type str"),
        ((None,), "done is of type NoneType"),
    ],
)
def test_progress_takes_finite_numbers_alone(call, said):
    with pytest.raises(BadInput, match=f"progress: {said}: must be a finite number"):
        progress(*call)


def test_every_event_that_a_script_emits_has_its_meaning():
    scripts = (file.read_text() for file in Path(store.__file__).with_name("lua").glob("*.lua"))
    emitted = {name for text in scripts for name in re.findall(r"'((?:task|run|inbox)\.[a-z_]+)'", text)}
    assert emitted >= {"task.submitted", "task.registered", "run.claimed", "inbox.left"}
    assert emitted <= EVENTS.keys()


def test_a_large_custom_event_is_cut():
    assert custom({"a": {1}}) == {"data": {"a": [1]}}
    assert custom("x" * 100_000)["data"].endswith("characters in all)")


# --- logs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def logged():
    """Give what is logged, and put logging back as it was."""
    root, out = logging.getLogger(), io.StringIO()
    before = (list(root.handlers), root.level, structlog.get_config())
    set_up_logging(Settings(log_format="json"), out)
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    logging.captureWarnings(False)
    root.handlers[:], level, config = before
    root.setLevel(level)
    structlog.configure(**config)


def test_a_stream_that_is_closed_costs_its_lines_alone(logged, monkeypatch):
    """An agent may close `sys.stderr`: runs end all the same."""
    closed = io.StringIO()
    set_up_logging(Settings(log_format="json"), closed)
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    structlog.get_logger("outrider.test").warning("run.ended")


def test_our_lines_and_those_of_others_have_one_form_and_no_passwords(logged):
    with structlog.contextvars.bound_contextvars(task_id="t"):
        structlog.get_logger("outrider.test").info("run.ended", url="redis://user:hunter2@host/0")
        logging.getLogger("celery.worker").warning("lost %s", "amqp://me:hunter2@broker//")
    ours, theirs = logged()
    assert (ours["event"], ours["task_id"], ours["url"]) == ("run.ended", "t", "redis://user:***@host/0")
    assert (theirs["event"], theirs["logger"], theirs["task_id"]) == (
        "lost amqp://me:***@broker//",
        "celery.worker",
        "t",
    )
    assert {"level", "timestamp"} <= ours.keys() & theirs.keys()


def test_a_password_in_a_traceback_is_masked(logged):
    error = ValueError("redis://:hunter2@host")
    logging.getLogger("any").error("failed", exc_info=error)
    assert "ValueError" in json.dumps(logged())
    assert "hunter2" not in json.dumps(logged())


def test_an_error_that_we_log_is_shown_without_its_text(logged):
    words = "the words"
    try:
        int(words)  # a frame shows its line of source
    except ValueError as error:
        structlog.get_logger("outrider.test").exception("sweep.odd")
        structlog.get_logger("outrider.test").error("worker.failed", exc_info=error)
    for line in logged():
        assert "the words" not in json.dumps(line)
        assert line["exception"].endswith("\nValueError")
        assert "test_an_error_that_we_log" in line["exception"]


def test_keys_in_urls_are_masked_wherever_they_stand(logged):
    """Clients of models log the URLs that they ask, some with the key in the query."""
    asked = "https://h/v1?model=m&api_key=hunter2&alt=sse"
    logging.getLogger("httpx").info('HTTP Request: POST %s "HTTP/1.1 200 OK"', asked)
    structlog.get_logger("any").info("asked", urls=[asked, "rediss://h/0?ssl_password=hunter2"])
    assert "hunter2" not in json.dumps(logged())
    assert "https://h/v1?model=m&api_key=***&alt=sse" in logged()[0]["event"]


def test_celery_s_line_for_every_task_is_left_out(logged):
    logging.getLogger("celery.app.trace").info("Task succeeded")
    logging.getLogger("celery.app.trace").error("Task raised")
    assert [line["event"] for line in logged()] == ["Task raised"]
