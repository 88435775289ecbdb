"""What the steps of the machine are made of: each does one thing to the store and to the model, and compares."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from langchain_core.messages import HumanMessage

from machine_checks import Checks, snapshot
from machine_model import ENDINGS, QUESTIONS, VERDICTS, Model, Note, Run, Task
from outrider.shared.context import Claim
from outrider.shared.errors import AnswerConflict, ClaimLost, NotWaiting, ParentClosed, SeveralQuestions, TaskActive
from outrider.shared.grades import Grade
from outrider.shared.ids import derived_id
from outrider.shared.records import Interrupt
from outrider.shared.records import Run as RunRecord
from outrider.shared.snapshots import Snapshot as Conversation
from outrider.shared.statuses import ASKING, EndedAs, RunKind, RunStatus
from outrider.shared.store import Store
from outrider.shared.transitions import Claimed, Cut, Ending, Facts, Settled, Submission

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence

    import redis
    import redis.asyncio

    from outrider.shared.bells import Bell
    from outrider.shared.notification import Notification
    from outrider.shared.records import Task as TaskRecord
    from outrider.shared.scripts import Scripts
    from outrider.shared.statuses import Strategy

T = TypeVar("T")

AGENT = "echo"
CONVERSATION = Conversation.of({"messages": [HumanMessage("so far", id="m")]})
REFUSALS = {"not waiting": NotWaiting, "several": SeveralQuestions, "not asked": AnswerConflict}
LEASE_MS = 3_600_000  #: no lease runs out by itself, and no sweep finds that nobody swept for half of one
MAX_TASKS = 7
ANSWERS_ALIKE = frozenset({"claim", "settle", "cancel", "answer", "expire", "update"})  #: scripts, when called again


@dataclass(eq=False)
class Hand:
    """Code at work for a claim, and the state of its conversation in memory."""

    task: Task
    run: Run
    claim: Claim
    read: list[Note]
    drained: bool = False  #: it took all in and saved after its final answer

    @property
    def holds(self) -> bool:
        return self.task.run is self.run and self.run.token == self.claim.token


@dataclass
class View:
    """What a sweeper found, which may be long ago when it acts on it."""

    task: Task
    run: RunRecord
    due: str  #: `lost`, `overdue`, `unanswered`, or `given up` where no attempt was left


def ending(name: str, of_run: str = "") -> Ending:
    run_status, (status, phase) = ENDINGS[name]
    asks = tuple(Interrupt(id=question, value="?") for question in QUESTIONS) if name == "waiting" else ()
    ended = Ending(run_status, EndedAs.FINISHED, status, phase, asks, result='"so far"')
    if name not in {"satisfied", "revise", "unjudged"}:
        return ended
    result = {"revise": "needs_revision", "unjudged": "grader_error"}.get(name, name)
    grade = Grade(
        result=result, explanation="", iteration=0, grading_run_id="g", graded_run_id=of_run, result_sha256=""
    )
    return replace(ended, grade=grade, feedback="mend it" if name == "revise" else "")


@dataclass
class Connections:
    """An empty database, seen by the store and by the checks."""

    open_client: Callable[[], redis.asyncio.Redis]
    reader: redis.Redis


class Twice:
    """Calls each script that answers a repeated call alike twice, as a client does that lost the first answer."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def __call__(self, name: str, keys: list[str], *args: Any) -> list[Any]:
        reply = await self._scripts(name, keys, *args)
        if name in ANSWERS_ALIKE or (name == "release" and args[0]["how"] != "lost"):
            again = await self._scripts(name, keys, *args)
            if name in {"cancel", "release"}:  # which tell what the status was before, and how long a pause is still
                again[1:2] = reply[1:2]
            assert again == reply, f"{name}, called twice, answers otherwise"
        return reply


def evenly(things: Sequence[T]) -> st.SearchStrategy[T]:
    """Draw each as often as the others: `sampled_from` gives the first ones most of the time."""
    return st.integers(0, 2**32 - 1).map(lambda number: things[zlib.crc32(number.to_bytes(4)) % len(things)])


class Ground(RuleBasedStateMachine):
    """One store on an empty database, its model, and whoever is at work on it."""

    draw: Callable[..., Any]  #: of the step that is being taken

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.reader = connections.reader
        self.client = connections.open_client()
        self.store = Store(self.client, "m")
        self.model = Model()
        self.checks = Checks(self.store.keys, AGENT)
        self.bells: list[tuple[Task, str]] = []
        self.hands: list[Hand] = []
        self.gone: list[tuple[Hand, str]] = []  #: hands that settled, and how
        self.views: list[View] = []
        self.looks: list[tuple[Task, TaskRecord]] = []  #: what cancellers, and who updates, saw before they act
        self.messages: list[tuple[Task, str, str | None]] = []  #: with what they started, by their keys
        self.sound = False  #: the last step went well

    def go(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def tasks(self) -> list[Task]:
        return self.model.tasks

    @property
    def room(self) -> bool:
        return len(self.tasks) < MAX_TASKS

    @property
    def open_tasks(self) -> list[Task]:
        return [task for task in self.tasks if not task.ended]

    @property
    def trees(self) -> list[Task]:
        return [task for task in self.tasks if any(not below.ended for below in task.below())]

    @property
    def stale(self) -> list[Hand]:
        return [hand for hand in self.hands if not hand.holds]

    @property
    def overslept(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.run.expired]

    @property
    def unclosed(self) -> list[Task]:
        return [task for task in self.tasks if task in self.model.unclosed]

    @property
    def readers(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.task.reads and hand.task.inbox and not hand.run.grades]

    @property
    def hands_above(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.task.children]

    @property
    def hands_below_a_cut(self) -> list[Hand]:
        """Whose canceller died, and nobody has walked since."""
        return [hand for hand in self.hands if hand.holds and hand.task.cut]

    @property
    def hands_below_one_that_asks(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.holds and hand.task.parent and hand.task.parent.open_questions]

    @property
    def to_be_graded(self) -> list[Task]:
        return [task for task, run in self.queued if run.grades and self.room]

    @property
    def open_children(self) -> list[Task]:
        return [task for task in self.open_tasks if task.parent]

    @property
    def failed_before(self) -> list[Hand]:
        return [hand for hand in self.holding if hand.run.failures]

    @property
    def holding(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.holds]

    @property
    def leased(self) -> list[tuple[Task, Run]]:
        """Runs whose code may be at work, those of cancelled tasks among them."""
        return [(task, run) for task in self.tasks for run in task.runs if run.slot]

    @property
    def queued(self) -> list[tuple[Task, Run]]:
        return [(task, task.run) for task in self.tasks if task.run and task.run.status is RunStatus.PENDING]

    @property
    def active(self) -> list[tuple[Task, Run]]:
        return [*self.leased, *self.queued]

    @property
    def late(self) -> list[Task]:
        return [task for task, run in self.active if run.expired] + [task for task, _ in self.unanswered]

    @property
    def asking(self) -> list[Task]:
        return [task for task in self.tasks if task.open_questions]

    @property
    def answered(self) -> list[tuple[Task, str]]:
        return [(task, run_id) for task, run_id in self.bells if task.answers and task.bounded]

    @property
    def half_answered(self) -> list[Task]:
        return [task for task in self.asking if task.answers]

    @property
    def outlived(self) -> list[tuple[Task, str]]:
        return [
            (task, run_id) for task, run_id in self.expiries if task.open_questions and task.runs[-1].run_id != run_id
        ]

    @property
    def unexpired(self) -> list[tuple[Task, str]]:
        """Questions that are asked now."""
        return [
            (task, run_id) for task, run_id in self.expiries if task.open_questions and task.runs[-1].run_id == run_id
        ]

    @property
    def expiries(self) -> list[tuple[Task, str]]:
        return list(self.model.expiries)

    @property
    def unanswered(self) -> list[tuple[Task, str]]:
        return [key for key, over in self.model.expiries.items() if over]

    def pick(self, things: list[T]) -> T:
        return self.draw(evenly(things))

    # What is done

    def submit(self, parent: Task | None, by: Hand | None, *, told: bool, reads: bool) -> None:
        name, graded = f"t{len(self.tasks)}", self.draw(st.booleans(), "graded")
        task = Task(name, parent, told, graded=graded, bounded=self.draw(st.booleans(), "bounded"), reads=reads)
        task.fork = parent is not None and self.draw(st.booleans(), "fork")
        submission = Submission(
            task_id=name,
            run_id=f"{name}-1",
            agent=AGENT,
            title=name,
            queue="subagents",
            input={"text": name},
            parent_id=parent.name if parent else None,
            ancestors=self.facts(task).ancestors,
            notify_parent=told,
            answer_within_ms=LEASE_MS if task.bounded else None,
            grade_queue="graders" if graded else None,
            mode="fork" if task.fork else "isolated",
            webhook="https://example.com/hook",
        )
        begins_with = CONVERSATION if task.fork else None
        claim = replace(by.claim) if by else None
        refusal = ClaimLost if by and not by.holds else ParentClosed if parent and parent.closed else None
        if refusal:
            with self.unchanged(), pytest.raises(refusal):
                self.go(self.store.submit(submission, claim, begins_with))
        else:
            assert self.go(self.store.submit(submission, claim, begins_with)).created
            self.model.submit(task)
            task.texts = [name]
            task.start(submission.run_id)
            self.bells.append((task, submission.run_id))

    def answer_bell(self, task: Task, run_id: str) -> Hand | None:
        expected = self.model.claim(task, run_id)
        with self.unchanged(when=expected == "dropped"):
            claimed = self.go(self.store.claim(self.facts(task), run_id, worker="w", lease_ms=LEASE_MS))
        if expected != "claimed":
            assert not isinstance(claimed, Claimed), expected
            self.woken(claimed.bells if isinstance(claimed, Cut) else None)
            return None
        assert isinstance(claimed, Claimed)
        assert not task.cut, "a task that was cut is never claimed"
        run = task.run
        run.token = claimed.claim.token
        assert claimed.input.get("text", "") == "\n\n".join(run.texts), "each message once, until it is saved"
        begins = task.fork and task.name in run.texts
        assert len(claimed.snapshot) == begins, "a fork begins with its parent's conversation, until that is saved"
        brings = run.brings or []
        self.same_notes(brings, claimed.notifications)
        # An attempt before this one may have saved more than the run was first given.
        known = len(task.saved)
        read = task.saved + [note for note in brings if task.inbox.index(note) >= known]
        hand = Hand(task, run, claimed.claim, read)
        self.hands.append(hand)
        return hand

    def answer_question(self, task: Task, question: str | None) -> None:
        value = self.draw(st.integers(0, 9), "value")
        expected = self.model.answer(task, question, value)
        if refusal := REFUSALS.get(expected):
            with self.unchanged(), pytest.raises(refusal):
                self.go(self.store.answer(self.facts(task), value, interrupt=question))
            return
        answered = self.go(self.store.answer(self.facts(task), value, interrupt=question))
        assert list(answered.open) == task.open_questions
        assert (answered.run_id is None) == (expected == "answered")
        if expected == "resumed":
            task.start(answered.run_id)
            task.run.brings, task.run.resumes = [], True
            self.bells += [(task, bell.run_id) for bell in answered.bells]
            given = self.reader.get(self.store.keys.input(answered.run_id))
            assert json.loads(given) == {"answers": task.answers}

    def expire(self, task: Task, run_id: str) -> None:
        expires = self.model.expire(task, run_id)
        expired = self.go(self.store.expire(self.facts(task), run_id))
        assert (expired is not None) == expires
        self.woken(expired.bells if expired else None)

    def update(
        self, task: Task, strategy: Strategy | None, *, by: Hand | None = None, seen: TaskRecord | None = None
    ) -> None:
        """Give a message; `seen` is what of the task was seen long before, `by` the run above it that updates."""
        text = f"m{len(self.messages)}"
        if by and not by.holds:
            with self.unchanged(), pytest.raises(ClaimLost):
                self.go(self.store.update(task.name, {"text": text}, strategy, claim=replace(by.claim)))
            return
        if seen:
            self.looked_before(seen)
        active, dropped = task.run, QUESTIONS if task.state == ASKING else ()
        expected = self.model.update(task, text, strategy)
        refused = pytest.raises(TaskActive) if expected == "active" else contextlib.nullcontext()
        with self.unchanged(when=expected == "active"), refused:
            claim = replace(by.claim) if by else None
            updated = self.go(self.store.update(task.name, {"text": text}, strategy, key=text, claim=claim))
        if expected == "active":
            return
        assert (updated.run_id is None) == (expected == "queued")
        assert updated.overtaken == (active.run_id if active and updated.run_id else None)
        assert tuple(one.id for one in updated.dropped) == (dropped if updated.run_id else ())
        self.messages.append((task, text, updated.run_id))
        self.woken(updated.bells)

    def looked_before(self, seen: TaskRecord) -> None:
        """Let the store's next look at a task find what it found then."""
        peek = self.store.peek

        async def late(_task_id: str) -> TaskRecord:
            self.store.peek = peek  # type: ignore[method-assign]
            return seen

        self.store.peek = late  # type: ignore[method-assign]

    def beat(self, hand: Hand) -> None:
        answer = self.go(self.store.heartbeat([replace(hand.claim)], lease_ms=LEASE_MS))
        assert answer == [hand.holds]
        if hand.run.slot and hand.run.token == hand.claim.token:
            hand.run.expired = False

    def cancel(self, task: Task, *, keep: bool, tell: bool = True) -> None:
        expected = self.model.cancel(task, keep=keep, tell=tell)
        with self.unchanged(when=expected != "cancelled" and keep):
            by = task.parent.name if task.parent and not tell else None
            answer = self.go(self.store.cancel(task.name, keep_children=keep, by=by))
        assert (answer.outcome, answer.status) == (expected, task.state[0])
        self.woken(answer.bells)

    def look(self, task: Task) -> tuple[Task, TaskRecord]:
        return task, self.go(self.store.peek(task.name))

    def cancel_one(self, task: Task, seen: TaskRecord, *, keep: bool) -> None:
        """The first step of a cancel, without its walk below."""
        expected = self.model.cancel(task, keep=keep, walk=False)
        with self.unchanged(when=expected != "cancelled" and keep):
            answer = self.go(self.store._cancel_one(seen, keep_children=keep, tell_parent=True))
        assert (answer.outcome, answer.status) == (expected, task.state[0])
        self.woken(answer.bells)

    def end(self, hand: Hand, how: str) -> None:
        how = self.how(hand.run, how)
        if how == "success" and not hand.drained:
            self.look_once_more(hand)
        elif how == "waiting":
            self.save_state(hand)
        self.settle_hand(hand, how)

    @staticmethod
    def facts(task: Task) -> Facts:
        path, above = [], task.parent
        while above:
            path.insert(0, above.name)
            above = above.parent
        return Facts(task.name, AGENT, task.name, path[-1] if path else None, tuple(path), webhook=True)

    @contextlib.contextmanager
    def unchanged(self, *, when: bool = True, but: Collection[str] = ()) -> Iterator[None]:
        before = snapshot(self.reader) if when else {}
        yield
        after = snapshot(self.reader) if when else {}
        assert {k: v for k, v in before.items() if k not in but} == {k: v for k, v in after.items() if k not in but}

    def woken(self, bells: tuple[Bell, ...] | None) -> None:
        """Each task that the model woke has a new run, and its bell was handed out, unless nobody is there to ring."""
        started = []
        for task in self.model.woken:
            run_id = self.reader.hget(self.store.keys.task(task.name), "run_id").decode()
            if task.ended:  # and was closed in the same call
                run_id = self.reader.lindex(self.store.keys.runs(task.name), -1).decode()
            assert run_id, f"{task.name} was not woken"
            task.start(run_id)
            started.append((task, run_id))
        self.model.woken.clear()
        if bells is not None:
            rung = [(bell.task_id, bell.run_id) for bell in bells]
            assert sorted(rung) == sorted((task.name, run_id) for task, run_id in started)
            self.bells += started

    def settled_again(self, claim: Claim) -> Settled:
        """The answer to a settle that is sent again: the bells of the runs that it started and nobody claimed yet."""
        started = (derived_id(claim.run_id, claim.token, what) for what in ("next", "wake"))
        runs = [run for run_id in started if (run := self.go(self.store.get_run(run_id)))]
        pending = [run for run in runs if run.status is RunStatus.PENDING]
        return Settled(tuple(self.store.bell(self.go(self.store.peek(run.task_id)), run) for run in pending))

    def same_notes(self, expected: list[Note], found: tuple[Notification, ...]) -> None:
        newest = {task.name: task.agent_run for task in self.tasks}
        assert all(note.overtaken == (note.run_id != newest[note.task_id]) for note in found)
        assert [(note.id, note.open_children) for note in found] == [(n.id, n.open_children) for n in expected]

    def take_in(self, hand: Hand) -> None:
        if not hand.holds:
            with self.unchanged():
                assert self.go(self.store.take(replace(hand.claim), len(hand.read))) is None
            return
        expected = self.model.take(hand.task, len(hand.read))
        taken = self.go(self.store.take(hand.claim, len(hand.read)))
        assert taken is not None
        self.same_notes(expected, taken)
        hand.read += expected
        hand.drained = hand.drained and not expected
        assert hand.read == hand.task.inbox, "each note once, in order"

    def save_state(self, hand: Hand) -> None:
        """Stands for the saver, whose fenced put counts itself in the record, raises its cursor and notes the run."""
        if not hand.holds:
            return
        record = self.store.keys.task(hand.task.name)
        hand.run.failures = 0
        self.reader.hincrby(record, "saves", 1)
        if hand.run.grades:
            return
        if len(hand.read) > len(hand.task.saved):
            hand.task.saved = list(hand.read)
            self.reader.hset(record, "cursor", len(hand.read))
        if not hand.run.resumes:
            hand.run.saved = True
            self.reader.hset(record, "saved_run", hand.run.run_id)

    def look_once_more(self, hand: Hand) -> None:
        if hand.task.reads:
            self.take_in(hand)
        self.save_state(hand)
        hand.drained = True

    @staticmethod
    def how(run: Run | RunRecord, how: str) -> str:
        """How a run ends: one that grades, by a verdict."""
        grades = run.kind is RunKind.GRADE if isinstance(run, RunRecord) else run.grades
        return VERDICTS.get(how, "revise") if grades else how

    def settle_hand(self, hand: Hand, how: str) -> None:
        held = hand.holds
        repeats = self.repeats(hand.run, hand.claim.token, how)
        settles = held and self.model.settle(hand.task, how)
        with self.unchanged(when=not held):
            settled = self.go(self.store.settle(replace(hand.claim), ending(how, hand.task.agent_run)))
        if repeats:
            assert settled == self.settled_again(hand.claim)
            return
        assert isinstance(settled, Settled) == settles
        self.woken(settled.bells if settled else None)
        if settles:
            self.hands.remove(hand)
            self.gone.append((hand, how))

    def let_time_pass(self, task: Task, run: Run) -> None:
        """Put a lease, or when a bell is rung again, into the past of Redis' own clock."""
        keys, run_id = self.store.keys, run.run_id
        run.expired = True
        if run.status is RunStatus.PENDING:
            self.reader.zadd(keys.ring_at(), {f"{task.name}/{run_id}": 1})
            if run.waits:
                run.waits = False
                self.reader.hset(keys.run(run_id), "not_before_ms", "1")
        else:
            self.reader.zadd(keys.leases(), {f"{task.name}/{run_id}": 1})
            self.reader.hset(keys.run(run_id), "lease_until_ms", "1")

    def let_question_expire(self, task: Task, run_id: str) -> None:
        self.model.expiries[task, run_id] = True
        self.reader.zadd(self.store.keys.answer_until(), {f"{task.name}/{run_id}": 1})

    def look_around(self) -> list[View]:
        due = self.go(self.store.sweep(lease_ms=LEASE_MS))
        assert set(due.unanswered) == {(task.name, run_id) for task, run_id in self.unanswered}
        for found, active in ((due.lost, self.leased), (due.overdue, self.queued)):
            assert set(found) == {(task.name, run.run_id) for task, run in active if run.expired}
        named = {task.name: task for task in self.tasks}
        return [
            View(named[name], self.go(self.store.get_run(run_id)), what)
            for what, pairs in (("lost", due.lost), ("overdue", due.overdue), ("unanswered", due.unanswered))
            for name, run_id in pairs
        ]

    def deal_with(self, view: View, *, max_attempts: int) -> None:
        task, run_id = view.task, view.run.run_id
        if view.due == "lost":
            self.take_lost(view, max_attempts)
        elif view.due == "given up":
            self.give_up(view)
        elif view.due == "unanswered":
            self.expire(task, run_id)
        else:
            due = any(queued is task and run.run_id == run_id and run.expired for queued, run in self.queued)
            with self.unchanged(when=not due):
                assert self.go(self.store.ring_again(self.facts(task), run_id)) == due
            if due:
                task.run.expired = False
                self.bells.append((task, run_id))

    def take_lost(self, view: View, max_attempts: int) -> None:
        if view.run.status is RunStatus.CANCELLED:
            self.free(view)
            return
        still_lost = self.still_lost(view)
        expected = self.model.release(view.task, "lost", max_attempts) if still_lost else "refused"
        with self.unchanged(when=expected != "released"):
            answer = self.go(self.store.take_lost(Claim.of(self.facts(view.task), view.run), max_attempts=max_attempts))
        assert answer == expected
        if answer == "released":
            self.bells.append((view.task, view.run.run_id))
        elif answer == "exhausted":
            self.views.append(replace(view, due="given up"))

    def free(self, view: View) -> None:
        """Free what a cancelled run's code holds, unless its worker is heard of again."""
        run = next(run for run in view.task.runs if run.run_id == view.run.run_id)
        claim = Claim.of(self.facts(view.task), view.run)
        lost = run.slot and run.expired
        with self.unchanged(when=not lost):
            freed = self.go(self.store.stopped(claim, only_expired=True))
        assert freed == (run.expired or not run.slot)
        run.slot = run.slot and not lost

    def close(self, task: Task) -> None:
        """Walk below a task again of which the canceller died."""
        self.model.close_below(task)
        self.woken(self.go(self.store.close_below(task.name)))

    def give_up(self, view: View) -> None:
        """Settle for a worker that was lost too often, unless it is back."""
        task, run = view.task, view.run
        how = ending(self.how(run, "error"), task.agent_run)
        claim = Claim(self.facts(task), run.run_id, run.epoch, run.token)
        repeated = any(r.run_id == run.run_id and self.repeats(r, run.token, "error") for r in task.runs)
        settles = self.still_lost(view) and self.model.settle(task, self.how(run, "error"))
        with self.unchanged(when=repeated):
            settled = self.go(self.store.settle(claim, how, only_expired=True))
        if repeated:
            assert settled == self.settled_again(claim)
            return
        assert isinstance(settled, Settled) == settles
        self.woken(settled.bells if settled else None)

    @staticmethod
    def still_lost(view: View) -> bool:
        run = view.task.run
        return bool(run and run.run_id == view.run.run_id and run.token == view.run.token and run.expired)

    @staticmethod
    def repeats(run: Run, token: str, how: str) -> bool:
        """Whether this settle was done before, which then is answered alike."""
        return run.token == token and run.status is ENDINGS[how][0]
