"""Reads the history of a storm against the promises: a pure function from its lines to what was broken.

A line is a dict with `who`, `what`, `at` (monotonic seconds of this machine) and facts:

agent      begin, end {task, run, epoch, pid, step, name} · read {…, step, notes, fault} · cancels {…, child}
           answered {…, value}
submitter  accepted {task, agent, bounds} · ended {task, run, status}
canceller  cancel {task, outcome, status}
updater    update {task, run, strategy, called_at}
age        aged {runs: {task: [run, …]}}: a tree that may be removed from now on
answerer   answer {task, run, value}
watcher    saw {task, status, phase, run, seq, given}
reader     record {task, agent, parent, ancestors, status, phase, run, runs, graded, seq, given, stopped}
           stream {task, events: [[type, run, data], …]} · state {task, notes, shape, done} · left {members}
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

from storm import provider

TERMINAL = {"success", "error", "timeout", "cancelled"}
#: Events that end a claim, and those that only a claim may write.
RELEASES = {
    "run.given_back",
    "run.lost",
    "run.retried",
    "task.resting",
    "task.grading",
    "task.revising",
    "task.waiting",
    "task.settled",
    "task.cancelled",
    "task.updated",
    "run.ended",
}
#: What bounds a task that ends with such an error.
BOUNDS = {"limit_turns": "max_turns", "timeout": "timeout_seconds", "Unanswered": "answer_within"}
CLAIMED = {"step", "tokens", "tool.started", "tool.ended", "progress", "custom"}


@dataclass(frozen=True)
class Violation:
    """A promise that was broken, of which task, and how that shows."""

    promise: str
    task: str
    how: str


class History:
    """The lines by what they are, oldest first."""

    def __init__(self, lines):
        self.lines = sorted(lines, key=lambda line: line["at"])
        self._by = defaultdict(list)
        for line in self.lines:
            self._by[line["who"], line["what"]].append(line)

    def of(self, who, *whats):
        return [line for what in whats for line in self._by[who, what]]

    @cached_property
    def records(self):
        return {line["task"]: line for line in self.of("reader", "record")}

    @cached_property
    def streams(self):
        return {line["task"]: line["events"] for line in self.of("reader", "stream")}

    @cached_property
    def states(self):
        return {line["task"]: line for line in self.of("reader", "state")}

    @cached_property
    def work(self):
        """What agents wrote down, by task, oldest first."""
        by = defaultdict(list)
        for line in self.lines:
            if line["who"] == "agent":
                by[line["task"]].append(line)
        return by

    @cached_property
    def cancelled_by_hand(self):
        """Tasks that somebody asked to cancel: what is below goes too, and quietly."""
        asked = {line["task"] for line in self.of("canceller", "cancel")}
        return asked | {line["child"] for line in self.of("agent", "cancels")}

    @cached_property
    def updated(self):
        """Tasks that were given a message: what had ended works again."""
        return {line["task"] for line in self.of("updater", "update")}

    def endings(self, task):
        """`(run, status)` of each ending in a task's stream."""
        return [
            (run, data["status"])
            for kind, run, data in self.streams.get(task, ())
            if kind in {"task.settled", "task.cancelled"}
        ]


def violations(lines):
    """All that was broken, in the order of the promises."""
    gone = _removed(lines)
    history = History(line for line in lines if line.get("task") not in gone)
    return [Violation(promise, task, how) for promise, broken in PROMISES.items() for task, how in broken(history)]


def _removed(lines):
    """Tasks that were removed, and were to be: they looked old, and nobody gave them a message since."""
    aged = {task: line["at"] for line in lines if line["what"] == "aged" for task in line["runs"]}
    there = {line["task"] for line in lines if line["what"] == "record"}
    called = {line["task"]: line["called_at"] for line in lines if line["what"] == "update"}
    return {task for task, at in aged.items() if task not in there and called.get(task, at) <= at}


def counts(found):
    """How often each promise was broken, also those that never were."""
    of = Counter(violation.promise for violation in found)
    return {promise: of[promise] for promise in PROMISES}


# --- the promises: each yields (task, how it shows) ------------------------------------------------------------------


def _lost(history):
    """A task that was accepted ends, or waits for a person."""
    for line in history.of("submitter", "accepted"):
        if line["task"] not in history.records:
            yield line["task"], "there is no record of it"
    for task, record in history.records.items():
        if (record["status"] not in TERMINAL or record["run"]) and not _waits(history, record):
            yield task, f"it is {record['status']}/{record['phase']} with the run {record['run'] or 'none'}"


def _waits(history, record):
    if record["status"] == "waiting":
        return True
    children = [other for other in history.records.values() if other["parent"] == record["task"]]
    return record["phase"] == "resting" and any(_waits(history, child) for child in children)


def _told_twice(history):
    """A notification enters a parent's state once."""
    for line in history.of("agent", "read") + history.of("reader", "state"):
        for note, times in Counter(line["notes"]).items():
            if times > 1:
                yield line["task"], f"{note} stands {times} times in its {'state' if 'shape' in line else 'reading'}"


def _untold(history):
    """What ended is told."""
    for task, record in history.records.items():
        parent = history.records.get(record["parent"])
        if parent is None or parent["status"] != "success" or parent["task"] not in history.states:
            continue
        told = set(history.states[parent["task"]]["notes"])
        by_parent = any(line["child"] == task for line in history.of("agent", "cancels"))
        quietly = by_parent or history.cancelled_by_hand.intersection(record["ancestors"])
        for ended, status in history.endings(task):
            run = record["graded"].get(ended, ended)  # the end of graded work is told by the run that did it
            if f"{task}:{run}:{status}" not in told and not (status == "cancelled" and (quietly or not run)):
                yield parent["task"], f"it was not told that {task} ended as {status} with the run {run}"


def _rests_on_news(history):
    """No task that may be woken is at rest with news that no run was given."""
    for line in history.of("watcher", "saw") + history.of("reader", "record"):
        wakeable = line["status"] in {"success", "error", "idle"} or line["phase"] == "resting"
        if wakeable and not line["run"] and line["seq"] > line["given"]:
            yield line["task"], f"{line['status']}/{line['phase']} with {line['seq'] - line['given']} not given"


def _ending_changed(history):
    """The first terminal status of a run stands, whoever looks."""
    for task in history.records:
        for run, times in Counter(run for run, _ in history.endings(task) if run).items():
            if times > 1:
                yield task, f"its run {run} ended {times} times"
    seen = defaultdict(set)
    for task, run, status in _sights(history):
        seen[task, run].add(status)
    for (task, run), statuses in seen.items():
        if run and len(statuses) > 1:
            yield task, f"its run {run} was seen as {', '.join(sorted(statuses))}"


def _sights(history):
    """As what the end of a task's run was seen: in the records, by who waited, and by its parent."""
    for task, record in history.records.items():
        endings = history.endings(task)
        yield from ((task, run, status) for run, status in endings)
        # A run after which its task rests has ended, and the task has not.
        ended = {run for run, _ in endings}
        yield from ((task, run, status) for run, status in record["runs"] if run in ended and status in TERMINAL)
    for line in history.of("submitter", "ended"):
        yield line["task"], line["run"], line["status"]
    for line in history.of("agent", "read") + history.of("reader", "state"):
        for note in line["notes"]:
            task, run, status = note.split(":")
            # A task that rests is cancelled under the name of its last run, which ended well.
            if status != "cancelled" or (run, status) in history.endings(task):
                yield task, run, status


def _invalid_history(history):
    """A provider accepts every conversation."""
    for line in history.of("agent", "read"):
        if line["fault"]:
            yield line["task"], line["fault"]
    for task, state in history.states.items():
        if fault := provider.fault(state["shape"], saved=True):
            yield task, f"saved: {fault}"


def _two_claims(history):
    """One run has one live claim, and only a live claim writes."""
    for task, events in history.streams.items():
        yield from ((task, how) for how in _claims_at_once(events))
    for task, lines in history.work.items():
        claimed = {run for kind, run, _ in history.streams.get(task, ()) if kind == "run.claimed"}
        for run in {line["run"] for line in lines} - claimed:
            yield task, f"{run} was at work and never claimed"
        for epoch, pids in _group(lines, "epoch", "pid").items():
            if len(pids) > 1:
                yield task, f"the processes {sorted(pids)} worked under its claim {epoch}"


def _claims_at_once(events):
    holder = None
    for kind, run, _ in events:
        if kind == "run.claimed":
            if holder:
                yield f"{run} was claimed while {holder} was held"
            holder = run
        elif kind in RELEASES:
            holder = None
        elif kind in CLAIMED and holder != run:
            yield f"{run} wrote {kind} without a claim"


def _group(lines, key, value):
    groups = defaultdict(set)
    for line in lines:
        groups[line[key]].add(line[value])
    return groups


def _step_repeated(history):
    """A step that is saved is not done again, by a claim that holds, nor is it in the state twice."""
    for task, lines in history.work.items():
        newest, reached = 0, defaultdict(int)
        for line in lines:
            if line["what"] not in {"begin", "read"}:
                continue
            newest = max(newest, line["epoch"])
            # What a worker does that was stopped, and does not know yet that its claim is gone, is not promised.
            if line["epoch"] == newest and line["step"] < reached[line["run"]]:
                yield task, f"step {line['step']} of {line['run']} began after step {reached[line['run']]}"
            # A step begins when the one before it is saved.
            reached[line["run"]] = max(reached[line["run"]], line["step"])
    for task, state in history.states.items():
        for step, times in Counter(state["done"]).items():
            if times > 1:
                yield task, f"{step} stands {times} times in its state"


def _cancel_untrue(history):
    """A cancel says what is true."""
    for line in history.of("canceller", "cancel"):
        task = line["task"]
        status = history.records[task]["status"] if task in history.records else "unknown"
        already = line["outcome"] == "already_finished"
        answered = line["status"] if already else "cancelled"
        if already and answered not in {status for _, status in history.endings(task)}:
            yield task, f"the answer was that it had ended as {answered}, and it never had"
        if answered in {"cancelled", "timeout"} and status != answered and task not in history.updated:
            yield task, f"the answer was {answered}, and it is {status}"


def _answer_lost(history):
    """What a person answered reaches the agent, and nothing else does."""
    given = {line["value"]: line for line in history.of("answerer", "answer")}
    got = {line["value"] for line in history.of("agent", "answered")}
    for value in got - given.keys():
        yield "", f"an agent got {value}, which nobody answered"
    for value in given.keys() - got:
        task, run = given[value]["task"], given[value]["run"]
        ran = dict(history.records[task]["runs"]).get(run) if task in history.records else None
        if ran == "success":
            yield task, f"its run {run} ended well without the answer {value}"


def _bound_untrue(history):
    """What a limit or an expiry ends has that bound, and does not go beyond it."""
    bounds = {line["task"]: line["bounds"] for line in history.of("submitter", "accepted")}
    for task, events in history.streams.items():
        for kind, run, data in events:
            why = data.get("error_type") if kind in {"task.settled", "run.ended"} else None
            if why in BOUNDS and BOUNDS[why] not in bounds.get(task, {}):
                yield task, f"its run {run} ended as {why}, without such a bound"
    for task, most in ((task, bound["max_turns"]) for task, bound in bounds.items() if "max_turns" in bound):
        lost = Counter(run for kind, run, _ in history.streams.get(task, ()) if kind == "run.lost")
        read = [line for line in history.work[task] if line["what"] == "read"]
        for run, steps in _group(read, "run", "step").items():
            if len(steps) > most + lost[run]:  # what a model used may die with its worker
                yield task, f"its run {run} made {len(steps)} turns of {most}"


def _left_behind(history):
    """When all is done nothing is held: no lease, no bell, no slot; and it is known when each task's code stopped."""
    for line in history.of("reader", "left"):
        for member in line["members"]:
            yield "", f"{member} is left"
    for task, record in history.records.items():
        if record["status"] in TERMINAL and not record["stopped"]:
            yield task, f"it is {record['status']}, and its code never stopped"


PROMISES = {
    "tasks lost": _lost,
    "told twice": _told_twice,
    "not told": _untold,
    "at rest with news": _rests_on_news,
    "terminal status changed": _ending_changed,
    "invalid history": _invalid_history,
    "two claims at once": _two_claims,
    "completed step repeated": _step_repeated,
    "cancel untrue": _cancel_untrue,
    "answer lost": _answer_lost,
    "bound untrue": _bound_untrue,
    "left behind": _left_behind,
}
