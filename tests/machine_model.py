"""The lifecycle of tasks in plain Python, small enough to be read against `docs/architecture.md`.

It knows statuses, runs, inboxes and cuts; of keys, indexes, epochs and scripts it knows nothing. What is derived in
the store (who is open, who has news) is computed anew here each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outrider.shared.statuses import ASKING, GRADING, QUEUED, RESTING, WORKING, RunStatus, State, Status, Strategy
from outrider.shared.store_clockwork import MAX_LOSSES

if TYPE_CHECKING:
    from collections.abc import Iterator

SUCCESS: State = (Status.SUCCESS, None)
ERROR: State = (Status.ERROR, None)
TIMEOUT: State = (Status.TIMEOUT, None)
CANCELLED: State = (Status.CANCELLED, None)

#: How a run can end: what it is called, and what its task becomes.
ENDINGS = {
    "success": (RunStatus.SUCCESS, SUCCESS),
    "error": (RunStatus.ERROR, ERROR),
    "timeout": (RunStatus.TIMEOUT, TIMEOUT),
    "waiting": (RunStatus.SUCCESS, ASKING),
    "satisfied": (RunStatus.SUCCESS, SUCCESS),
    "revise": (RunStatus.SUCCESS, QUEUED),
    "unjudged": (RunStatus.ERROR, SUCCESS),
}
VERDICTS = {"success": "satisfied", "error": "unjudged"}  #: how a grade run ends where an agent's would end so


QUESTIONS = ("a", "b")  #: what each run asks that pauses


@dataclass(frozen=True)
class Note:
    """What a parent is told."""

    id: str
    open_children: int  #: of the parent, once this child had ended


@dataclass(eq=False)
class Run:
    """One execution. `token` is that of its last claim, unless that lost it."""

    run_id: str
    grades: bool = False  #: it grades the run before it
    status: RunStatus = RunStatus.PENDING
    attempt: int = 0
    failures: int = 0  #: losses and retried errors since the last new checkpoint
    losses: int = 0
    waits: bool = False  #: its next attempt is not to start yet
    token: str | None = None
    expired: bool = False  #: its lease ran out, or its bell is overdue
    slot: bool = False  #: some code may be at work for it: it has a lease and a slot
    rested: bool = False  #: it ended well, and its task did not
    texts: list[str] = field(default_factory=list)  #: what it was given
    resumes: bool = False  #: it goes on with answers, and has no input to save
    saved: bool = False  #: what it was given is in the saved state
    brings: list[Note] | None = None  #: the notes of its first claim, the same for every attempt


@dataclass(eq=False)
class Task:
    """A task, its place in the tree, and what its saved state has of its inbox."""

    name: str
    parent: Task | None = None
    told: bool = True  #: whether its parent is to hear of its end
    bounded: bool = False  #: whether its questions expire
    graded: bool = False  #: whether its work is graded
    fork: bool = False  #: whether it begins with its parent's conversation
    reads: bool = True  #: whether it takes news in while it runs, as the parents' middleware does
    state: State = QUEUED
    run: Run | None = None
    runs: list[Run] = field(default_factory=list)
    children: list[Task] = field(default_factory=list)
    inbox: list[Note] = field(default_factory=list)
    given: int = 0
    saved: list[Note] = field(default_factory=list)  #: its length is the cursor
    trimmed: int = 0  #: notes that its inbox does not hold any more
    answers: dict[str, int] = field(default_factory=dict)  #: to what its last run asked
    texts: list[str] = field(default_factory=list)  #: what its next run is given
    follow_ups: list[str] = field(default_factory=list)  #: messages that wait for the end of what it is at
    cut: bool = False  #: an ancestor was cancelled with its children

    @property
    def root(self) -> Task:
        return self.parent.root if self.parent else self

    @property
    def ended(self) -> bool:
        return self.state[0].terminal

    @property
    def at_rest(self) -> bool:
        return self.state in {SUCCESS, ERROR, RESTING}

    @property
    def has_news(self) -> bool:
        return len(self.inbox) > self.given

    @property
    def open_questions(self) -> list[str]:
        return [name for name in QUESTIONS if name not in self.answers] if self.state == ASKING else []

    @property
    def open_children(self) -> list[Task]:
        return [child for child in self.children if child.told and not child.ended]

    @property
    def unsaved(self) -> list[str]:
        """What its last run was given and did not save."""
        last = self.runs[-1]
        return [] if last.grades or last.saved or last.status is RunStatus.SUCCESS else list(last.texts)

    @property
    def agent_run(self) -> str:
        """By which its end is told."""
        return [run.run_id for run in self.runs if not run.grades][-1]

    @property
    def closed(self) -> bool:
        """Whether it takes no children."""
        return self.state == CANCELLED or self.cut

    def below(self) -> Iterator[Task]:
        for child in self.children:
            yield child
            yield from child.below()

    def start(self, run_id: str) -> None:
        self.run = Run(run_id, grades=self.state == GRADING, texts=self.texts)
        self.texts = []
        self.runs.append(self.run)

    def stop(self, status: RunStatus) -> None:
        if self.run:
            self.run.status, self.run = status, None


class Model:
    """All tasks. `woken` gathers those that must have got a new run by the last move, for whatever reason."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.woken: list[Task] = []
        self.expiries: dict[tuple[Task, str], bool] = {}  #: of bounded tasks' runs that asked: whether time is over
        self.unclosed: set[Task] = set()  #: cancelled with what is below, of which it is not known that it was closed

    def submit(self, task: Task) -> None:
        self.tasks.append(task)
        if task.parent:
            task.parent.children.append(task)

    def claim(self, task: Task, run_id: str) -> str:
        """`claimed`, `cut`, or `dropped` where there is nothing to do."""
        run = task.run
        if run is None or run.run_id != run_id or run.status is not RunStatus.PENDING:
            return "dropped"
        if task.cut:
            self.close(task)
            return "cut"
        if run.waits:
            return "dropped"
        task.state = GRADING if run.grades else WORKING
        run.status, run.expired, run.slot = RunStatus.RUNNING, False, True
        if run.brings is None and not run.grades:
            run.brings = task.inbox[len(task.saved) :]
            task.given = len(task.inbox)
        return "claimed"

    def take(self, task: Task, after: int) -> list[Note]:
        task.given = max(task.given, len(task.inbox)) if len(task.inbox) > after else task.given
        return task.inbox[after:]

    def settle(self, task: Task, ending: str) -> bool:
        """Whether the run ended so; a task that was cut is closed instead."""
        if task.cut:
            self.close(task)
            return False
        status, state = ENDINGS[ending]
        run = task.run
        run.slot, task.trimmed = False, len(task.saved)
        task.stop(status)
        rests = state == SUCCESS and bool(task.open_children or task.has_news)
        is_graded = ending == "success" and not rests and task.graded
        if task.follow_ups and not is_graded and state not in {ASKING, QUEUED}:
            self.give(task, task.follow_ups.pop(0))
        elif rests:
            run.rested, task.state = not run.grades, RESTING
        elif is_graded:
            task.state = GRADING
            self.woken.append(task)
        else:
            task.state = state
            if ending == "revise":
                self.woken.append(task)
            else:
                self.tell_parent(task)
            if state == ASKING:
                task.answers = {}
                if task.bounded:
                    self.expiries[task, run.run_id] = False
        self.wake(task)
        return True

    def answer(self, task: Task, question: str | None, value: int) -> str:
        """`answered`, `resumed` where it was the last one, or why it was refused."""
        if task.state != ASKING:
            return "not waiting"
        if question is None:
            if len(task.open_questions) != 1:
                return "several"
            (question,) = task.open_questions
        if question not in task.open_questions:
            return "not asked"
        task.answers[question] = value
        if task.open_questions:
            return "answered"
        task.state = QUEUED
        return "resumed"

    def expire(self, task: Task, run_id: str) -> bool:
        if not self.expiries.get((task, run_id)):
            return False
        del self.expiries[task, run_id]
        if task.state != ASKING or task.runs[-1].run_id != run_id:
            return False
        if task.follow_ups:
            self.give(task, task.follow_ups.pop(0))
        else:
            task.state = TIMEOUT
            self.tell_parent(task)
        return True

    def update(self, task: Task, text: str, strategy: Strategy | None) -> str:
        """`started`, `queued`, or `active` where it was refused."""
        if strategy is Strategy.ENQUEUE and (task.run or task.state == ASKING):
            task.follow_ups.append(text)
            return "queued"
        if task.run and strategy is None:
            return "active"
        task.stop(RunStatus.CANCELLED)
        task.cut = False
        self.give(task, text)
        return "started"

    def give(self, task: Task, text: str) -> None:
        """Start a run with a message, and with what the run before was given and did not save."""
        task.texts, task.state = [*task.unsaved, text], QUEUED
        self.woken.append(task)

    def release(self, task: Task, how: str, max_attempts: int = 0) -> str:
        """It is `given_back`, `retried` or `lost`."""
        run, failed, lost = task.run, how != "given_back", how == "lost"
        used_up = run.failures + 1 >= max_attempts or run.losses + lost >= max(MAX_LOSSES, max_attempts)
        if failed and used_up:
            return "exhausted"
        run.status, run.token, run.slot, run.expired = RunStatus.PENDING, None, False, False
        run.attempt += failed
        run.failures += failed
        run.losses += lost
        run.waits = how == "retried"
        task.state = GRADING if run.grades else QUEUED
        return "released"

    def cancel(
        self, task: Task, *, keep: bool = False, tell: bool = True, walk: bool = True, was_cut: bool = False
    ) -> str:
        """End it and, unless they are kept, cut all that is below now; `walk` closes those at once.

        What is below a task that was cut itself is cut by now, or took its place since.
        """
        ended = task.ended
        if not keep and not was_cut and task.children:
            self.unclosed.add(task)
            for each in task.below():
                each.cut = True
        if not ended:
            task.stop(RunStatus.CANCELLED)
            task.state = CANCELLED
            task.follow_ups.clear()
            if tell or (task.parent and task.parent.state == RESTING):  # which nothing else might ever wake
                self.tell_parent(task)
        if walk and not keep:
            self.close_below(task)
        return "already_finished" if ended else "cancelled"

    def close_below(self, task: Task) -> None:
        for each in task.below():
            if each.cut:
                self.cancel(each, tell=False, walk=False, was_cut=True)
        self.unclosed -= {task, *(each for each in task.below() if each.cut)}

    def close(self, task: Task) -> None:
        """What becomes of a task of which it is found that it was cut."""
        self.cancel(task, tell=False, was_cut=True)

    def tell_parent(self, task: Task) -> None:
        parent = task.parent
        if parent and task.told:
            parent.inbox.append(Note(f"{task.name}:{task.agent_run}:{task.state[0]}", len(parent.open_children)))
            self.wake(parent)

    def wake(self, task: Task) -> None:
        if task.at_rest and task.has_news:
            task.texts, task.state = task.unsaved, QUEUED
            self.woken.append(task)
