"""The checker of storms finds each promise that is broken on purpose in a copy of a sound history."""

import copy
import itertools

import pytest

from storm.checker import PROMISES, counts, violations

SHAPE = [["human"], ["ai", ["call"]], ["tool", "call"], ["human"], ["ai", []]]


def sound():
    """A parent that rests and is woken by two children: one lost its worker, one was cancelled by a person.

    Another task ended by a limit, and one was removed.
    """
    clock = itertools.count()

    def line(who, what, **facts):
        return {"who": who, "what": what, "at": next(clock), **facts}

    def work(what, task, run, epoch, step, **facts):
        return line("agent", what, task=task, run=run, epoch=epoch, step=step, **{"pid": 1} | facts)

    def record(task, parent, status, runs, news=0):
        facts = {
            "task": task,
            "parent": parent,
            "ancestors": [parent] if parent else [],
            "agent": "a",
            "runs": runs,
            "graded": {},
        }
        facts |= {"status": status, "phase": None, "run": None, "seq": news, "given": news, "stopped": True}
        return line("reader", "record", **facts)

    def stream(task, *events):
        return line("reader", "stream", task=task, events=[list(event) for event in events])

    def state(task, notes=(), shape=(), done=()):
        return line("reader", "state", task=task, notes=list(notes), shape=copy.deepcopy(list(shape)), done=list(done))

    told = ["c:c1:success", "d:d1:cancelled"]
    settled, cancelled = (
        ("task.settled", "c1", {"status": "success"}),
        ("task.cancelled", "d1", {"status": "cancelled"}),
    )
    return [
        line("submitter", "accepted", task="p", agent="lead", bounds={}),
        line("submitter", "accepted", task="l", agent="talker", bounds={"max_turns": 1}),
        line("submitter", "accepted", task="o", agent="steps", bounds={}),
        work("begin", "o", "o1", 1, 1, name="step"),
        line("age", "aged", runs={"o": ["o1"]}),
        work("read", "l", "l1", 1, 1, notes=[], fault=None),
        work("read", "l", "l1", 2, 3, notes=[], fault=None),
        work("read", "p", "p1", 1, 1, notes=[], fault=None),
        work("begin", "c", "c1", 1, 1, name="step"),
        work("begin", "c", "c1", 1, 2, name="step"),
        line("watcher", "saw", task="p", status="running", phase="resting", run=None, seq=0, given=0),
        work("begin", "c", "c1", 3, 2, pid=2, name="step"),
        work("begin", "c", "c1", 1, 1, name="step"),  # it was frozen, and does not know yet
        work("begin", "c", "c1", 3, 3, pid=2, name="step"),
        line("canceller", "cancel", task="d", outcome="cancelled", status="cancelled"),
        line("canceller", "cancel", task="c", outcome="already_finished", status="success"),
        work("read", "p", "p2", 2, 5, notes=told, fault=None),
        line("submitter", "ended", task="p", run="p2", status="success"),
        line("answerer", "answer", task="c", run="c1", value="42"),
        work("answered", "c", "c1", 3, 3, pid=2, value="42"),
        record("p", None, "success", [["p1", "success"], ["p2", "success"]], news=2),
        stream(
            "p",
            ("run.claimed", "p1", {}),
            ("step", "p1", {}),
            ("task.resting", "p1", {}),
            ("task.woken", "p2", {}),
            ("run.claimed", "p2", {}),
            ("task.settled", "p2", {"status": "success"}),
        ),
        state("p", notes=told, shape=SHAPE),
        record("c", "p", "success", [["c1", "success"]]),
        stream(
            "c",
            ("run.claimed", "c1", {}),
            ("step", "c1", {}),
            ("run.lost", "c1", {}),
            ("run.claimed", "c1", {}),
            ("step", "c1", {}),
            settled,
        ),
        state("c", done=["c1:0", "c1:1", "c1:2"]),
        record("d", "p", "cancelled", [["d1", "cancelled"]]),
        stream("d", cancelled),
        state("d"),
        record("l", None, "error", [["l1", "error"]]),
        stream(
            "l",
            ("run.claimed", "l1", {}),
            ("run.lost", "l1", {}),
            ("run.claimed", "l1", {}),
            ("task.settled", "l1", {"status": "error", "error_type": "limit_turns"}),
        ),
        line("reader", "left", members=[]),
    ]


def of(history, what, **facts):
    """The one line of a kind that has these facts."""
    (found,) = [one for one in history if one["what"] == what and facts.items() <= one.items()]
    return found


def without(history, what, **facts):
    history.remove(of(history, what, **facts))


def events(history, task):
    return of(history, "stream", task=task)["events"]


BROKEN = {
    "accepted and gone": ("tasks lost", lambda h: without(h, "record", task="p")),
    "queued for ever": ("tasks lost", lambda h: of(h, "record", task="c").update(status="pending", run="c1")),
    "rests for nobody": ("tasks lost", lambda h: of(h, "record", task="p").update(status="running", phase="resting")),
    "twice in a state": ("told twice", lambda h: of(h, "state", task="p")["notes"].append("c:c1:success")),
    "twice in what a model reads": ("told twice", lambda h: of(h, "read", run="p2")["notes"].append("c:c1:success")),
    "an end untold": ("not told", lambda h: of(h, "state", task="p")["notes"].remove("c:c1:success")),
    "a cancel untold": ("not told", lambda h: of(h, "state", task="p")["notes"].remove("d:d1:cancelled")),
    "rests on news": ("at rest with news", lambda h: of(h, "saw").update(seq=1)),
    "done with news": ("at rest with news", lambda h: of(h, "record", task="p").update(seq=3)),
    "ended twice": (
        "terminal status changed",
        lambda h: events(h, "c").append(["task.settled", "c1", {"status": "error"}]),
    ),
    "recorded as another": (
        "terminal status changed",
        lambda h: of(h, "record", task="c")["runs"].insert(0, ["c1", "error"]),
    ),
    "awaited as another": ("terminal status changed", lambda h: of(h, "ended").update(status="error")),
    "told as another": ("terminal status changed", lambda h: of(h, "read", run="p2")["notes"].append("c:c1:error")),
    "a model refuses": ("invalid history", lambda h: of(h, "read", run="p2").update(fault="no")),
    "an orphan result": ("invalid history", lambda h: of(h, "state", task="p")["shape"].append(["tool", "call"])),
    "an open call": ("invalid history", lambda h: of(h, "state", task="p")["shape"].pop(2)),
    "claimed while held": ("two claims at once", lambda h: events(h, "c").remove(["run.lost", "c1", {}])),
    "a trace after a loss": ("two claims at once", lambda h: events(h, "c").insert(3, ["step", "c1", {}])),
    "a trace after the end": ("two claims at once", lambda h: events(h, "p").append(["step", "p2", {}])),
    "two under one claim": ("two claims at once", lambda h: of(h, "begin", epoch=3, step=3).update(pid=9)),
    "never claimed": ("two claims at once", lambda h: events(h, "c").clear()),
    "a saved step again": ("completed step repeated", lambda h: of(h, "begin", epoch=3, step=2).update(step=1)),
    "a step twice in a state": ("completed step repeated", lambda h: of(h, "state", task="c")["done"].append("c1:0")),
    "cancelled and not": ("cancel untrue", lambda h: of(h, "record", task="d").update(status="success")),
    "finished and not": ("cancel untrue", lambda h: of(h, "cancel", task="c").update(status="error")),
    "an answer lost": ("answer lost", lambda h: without(h, "answered")),
    "an answer of nobody": ("answer lost", lambda h: without(h, "answer")),
    "ended by a limit of others": ("bound untrue", lambda h: of(h, "accepted", task="l").update(bounds={})),
    "more turns than there are": ("bound untrue", lambda h: events(h, "l").remove(["run.lost", "l1", {}])),
    "removed while young": ("tasks lost", lambda h: without(h, "aged")),
    "removed with a message to it": (
        "tasks lost",
        lambda h: h.append(h[-1] | {"who": "updater", "what": "update", "task": "o", "called_at": 1e9}),
    ),
    "a lease is left": ("left behind", lambda h: of(h, "left")["members"].append("lease c/c1")),
    "code goes on": ("left behind", lambda h: of(h, "record", task="d").update(stopped=False)),
}


def test_a_sound_history_breaks_nothing():
    assert violations(sound()) == []
    assert set(counts([]).values()) == {0}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_promise_is_found(how):
    promise, broken = BROKEN[how]
    history = sound()
    broken(history)
    found = {violation.promise for violation in violations(history)}
    assert promise in found


def test_every_promise_is_broken_once():
    assert {promise for promise, _ in BROKEN.values()} == PROMISES.keys()
