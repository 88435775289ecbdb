"""A random walk through the life of tasks: workers, a sweeper, cancellers, and bells that go astray.

After each step the whole database is compared with the model. Workers that die, stall and come back are hands whose
claim was replaced; a sweeper or a canceller that is slow acts on what it saw long ago.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import fakeredis
import redis
import redis.asyncio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from machine_checks import drained, snapshot
from machine_ground import AGENT, LEASE_MS, Connections, Ground, Hand, Twice, ending, evenly
from machine_model import QUESTIONS
from outrider.shared.records import Fault
from outrider.shared.statuses import RunStatus, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., None]")

STEPS: list[tuple[str, str, int]] = []  #: name, what it needs, how often

yes_or_no = st.booleans()
mostly = evenly([True, True, True, False])
strategies = evenly([None, *Strategy])
endings = evenly(["success", "success", "success", "success", "error", "error", "timeout", "waiting"])


def step(needs: str, often: int = 1) -> Callable[[F], F]:
    """Make a method a step of the walk, which is taken so often where the named list is not empty.

    A rule each would not do: Hypothesis leaves out some rules in each walk, and most walks would then end nothing.
    """

    def mark(method: F) -> F:
        STEPS.append((method.__name__, needs, often))
        return method

    return mark


class Machine(Ground):
    """Drives the store and the model, one step after the other."""

    @initialize(data=st.data())
    def begin(self, data: Any) -> None:
        """A tree, each parent of which is at work."""
        self.draw = data.draw
        if self.draw(yes_or_no, "twice"):
            self.store._scripts = Twice(self.store._scripts)
        self.submit_root()
        for _ in range(self.draw(st.integers(1, 5), "children")):
            parent = self.pick(self.tasks)
            if parent.run.status is RunStatus.PENDING:
                self.answer_bell(parent, parent.run.run_id)
            by = next(hand for hand in self.hands if hand.task is parent)
            self.submit(parent, by, told=self.draw(mostly), reads=self.draw(yes_or_no))

    @rule(data=st.data())
    def go_on(self, data: Any) -> None:
        self.draw, self.sound = data.draw, False
        names = [name for name, needs, often in STEPS if getattr(self, needs) for _ in range(often)]
        getattr(self, self.draw(evenly(names), "step"))()

    # Submitting

    @step("room")
    def submit_root(self) -> None:
        self.submit(None, None, told=True, reads=self.draw(yes_or_no))

    @step("room")
    def submit_below(self) -> None:
        """By a client, below any task."""
        self.submit(self.pick(self.tasks), None, told=self.draw(mostly), reads=self.draw(yes_or_no))

    @step("hands", often=3)
    def submit_child(self) -> None:
        """By a run, which may have been replaced meanwhile."""
        hand = self.pick(self.hands)
        if self.room or not hand.holds:
            self.submit(hand.task, hand, told=self.draw(mostly), reads=self.draw(yes_or_no))

    # Bells and workers

    @step("bells", often=8)
    def work(self) -> None:
        """A worker does a whole run undisturbed."""
        bell, how = self.pick(self.bells), self.draw(endings)
        self.bells.remove(bell)
        if hand := self.answer_bell(*bell):
            self.end(hand, how)

    @step("bells", often=6)
    def answer(self) -> None:
        """A bell arrives; it may have been doubled, and then arrives again."""
        bell = self.pick(self.bells)
        if self.draw(mostly):
            self.bells.remove(bell)
        self.answer_bell(*bell)

    @step("bells")
    def lose_bell(self) -> None:
        self.bells.remove(self.pick(self.bells))

    @step("hands", often=6)
    def settle(self) -> None:
        self.end(self.pick(self.hands), self.draw(endings))

    @step("hands_below_a_cut", often=20)
    def settle_below_a_cut(self) -> None:
        self.end(self.pick(self.hands_below_a_cut), self.draw(endings))

    @step("hands_below_one_that_asks", often=20)
    def settle_below_one_that_asks(self) -> None:
        """News comes while a person is asked."""
        self.end(self.pick(self.hands_below_one_that_asks), self.draw(endings))

    @step("to_be_graded", often=6)
    def work_below_one_that_is_to_be_graded(self) -> None:
        """News comes before the grader."""
        parent, rung = self.pick(self.to_be_graded), len(self.bells)
        self.submit(parent, None, told=True, reads=False)
        if len(self.bells) > rung and (hand := self.answer_bell(*self.bells.pop())):
            self.end(hand, "success")

    @step("readers", often=3)
    def read_news(self) -> None:
        """The parents' middleware before a model call."""
        self.take_in(self.pick(self.readers))

    @step("readers", often=6)
    def read_once_more(self) -> None:
        """The middleware after the final answer."""
        self.look_once_more(self.pick(self.readers))

    @step("hands")
    def save(self) -> None:
        self.save_state(self.pick(self.hands))

    @step("hands")
    def die(self) -> None:
        self.hands.remove(self.pick(self.hands))

    @step("hands", often=2)
    def give_back(self) -> None:
        hand = self.pick(self.hands)
        held = hand.holds
        with self.unchanged(when=not held):
            assert self.go(self.store.give_back(replace(hand.claim))) == held
        if held:
            self.model.release(hand.task, "given_back")
            self.bells.append((hand.task, hand.run.run_id))
            self.hands.remove(hand)

    @step("hands", often=2)
    def retry(self) -> None:
        """The agent ended in an error that is worth another attempt."""
        self.retry_hand(self.pick(self.hands), self.draw(evenly([1, 2, 2, 3])))

    @step("failed_before", often=20)
    def save_and_retry(self) -> None:
        """It has come further since it failed: what was counted before counts no more."""
        hand = self.pick(self.failed_before)
        self.save_state(hand)
        self.retry_hand(hand, 2)

    def retry_hand(self, hand: Hand, max_attempts: int) -> None:
        expected = self.model.release(hand.task, "retried", max_attempts) if hand.holds else "refused"
        work = self.store.retry(
            replace(hand.claim),
            Fault(type="Flaky", message="not now"),
            least_ms=LEASE_MS,
            max_attempts=max_attempts,
        )
        with self.unchanged(when=expected != "released"):
            answer, pause_ms = self.go(work)
        assert (answer, pause_ms >= LEASE_MS) == (expected, expected == "released")
        if answer == "released":
            self.hands.remove(hand)

    @step("overslept", often=8)
    def heartbeat(self) -> None:
        """A worker is heard of again."""
        self.beat(self.pick(self.overslept))

    @step("stale")
    def notice(self) -> None:
        """A worker finds that its claim was replaced, and its code stops."""
        hand = self.pick(self.stale)
        self.hands.remove(hand)
        cancelled = hand.run.status is RunStatus.CANCELLED and hand.run.token == hand.claim.token
        with self.unchanged(when=not cancelled):
            assert self.go(self.store.stopped(hand.claim)) == cancelled
        hand.run.slot = hand.run.slot and not cancelled

    @step("stale", often=6)
    def write_late(self) -> None:
        """A worker does not find that its claim was replaced; nothing that it writes is taken."""
        hand = self.pick(self.stale)
        how = self.how(hand.run, self.draw(endings))
        claim = replace(hand.claim)
        answer = self.settled_again(claim) if self.repeats(hand.run, claim.token, how) else None
        with self.unchanged():
            assert self.go(self.store.settle(claim, ending(how))) == answer
            assert self.go(self.store.settle(claim, ending(how), only_expired=True)) == answer
            assert not self.go(self.store.give_back(claim))
            assert self.go(self.store.take(claim, 0)) is None
            assert not self.go(self.store.emit(claim, [("step", {})]))
        self.submit(hand.task, hand, told=True, reads=True)
        with self.unchanged(but=(self.store.keys.slots(AGENT), self.store.keys.leases())):  # its code is still at work
            self.beat(hand)

    @step("gone")
    def settle_again(self) -> None:
        """The answer of a settle was lost, and it is sent again."""
        hand, how = self.pick(self.gone)
        with self.unchanged():
            assert self.go(self.store.settle(hand.claim, ending(how))) == self.settled_again(hand.claim)

    # People

    @step("tasks", often=3)
    def update_any(self) -> None:
        self.update(self.pick(self.tasks), self.draw(strategies))

    @step("hands", often=2)
    def overtake(self) -> None:
        """A message that does not wait for what its task is at."""
        self.update(self.pick(self.hands).task, Strategy.INTERRUPT)

    @step("hands_above")
    def update_below(self) -> None:
        """By a run above it, which may have been replaced meanwhile."""
        hand = self.pick(self.hands_above)
        self.update(self.pick(list(hand.task.below())), self.draw(strategies), by=hand)

    @step("looks")
    def update_what_was_seen(self) -> None:
        """By someone who is slow."""
        task, seen = self.pick(self.looks)
        self.looks.remove((task, seen))
        self.update(task, self.draw(strategies), seen=seen)

    @step("messages")
    def update_again(self) -> None:
        """The same message with the same key."""
        task, text, run_id = self.pick(self.messages)
        with self.unchanged():
            updated = self.go(self.store.update(task.name, {"text": text}, self.draw(strategies), key=text))
        assert (updated.run_id, updated.bells) == (run_id, ())

    @step("asking", often=6)
    def answer_in_order(self) -> None:
        task = self.pick(self.asking)
        self.answer_question(task, task.open_questions[0])

    @step("asking", often=2)
    def answer_without_a_name(self) -> None:
        """It goes to the only question, and to none where there are two."""
        self.answer_question(self.pick(self.asking), None)

    @step("tasks")
    def answer_anything(self) -> None:
        """It may not be asked, not be asked any more, or be one of two that are."""
        self.answer_question(self.pick(self.tasks), self.draw(evenly([None, *QUESTIONS])))

    @step("answered", often=8)
    def ask_once_more(self) -> None:
        """A run that was answered asks again."""
        bell = self.pick(self.answered)
        self.bells.remove(bell)
        if hand := self.answer_bell(*bell):
            self.end(hand, "waiting")

    @step("half_answered", often=8)
    def answer_again(self) -> None:
        """What was answered before, while other questions are open."""
        task = self.pick(self.half_answered)
        self.answer_question(task, next(iter(task.answers)))

    # The sweeper

    @step("active", often=4)
    def time_passes(self) -> None:
        """A lease runs out, or a bell is overdue."""
        self.let_time_pass(*self.pick(self.active))

    @step("expiries", often=2)
    def question_expires(self) -> None:
        self.let_question_expire(*self.pick(self.expiries))

    @step("unexpired", often=4)
    def expire_what_a_message_waits_for(self) -> None:
        task, run_id = self.pick(self.unexpired)
        self.update(task, Strategy.ENQUEUE)
        self.let_question_expire(task, run_id)
        self.expire(task, run_id)

    @step("expiries")
    def expire_late_or_early(self) -> None:
        """A sweeper is slow, or is wrong."""
        self.expire(*self.pick(self.expiries))

    @step("outlived", often=20)
    def expire_what_was_answered(self) -> None:
        """The question before the one that is asked now."""
        expiry = self.pick(self.outlived)
        self.let_question_expire(*expiry)
        self.expire(*expiry)

    @step("late", often=8)
    def sweep(self) -> None:
        """One sweeper or two look around; what they do about it comes later."""
        for _ in range(self.draw(st.integers(1, 2))):
            self.views += self.look_around()

    @step("views", often=8)
    def deal(self) -> None:
        view = self.pick(self.views)
        self.views.remove(view)
        self.deal_with(view, max_attempts=self.draw(st.integers(1, 2)))

    @step("holding", often=4)
    def come_back(self) -> None:
        """A worker is heard of again just before a sweeper takes its run or gives it up, or just after."""
        hand = self.pick(self.holding)
        if self.draw(yes_or_no):
            self.save_state(hand)
        self.let_time_pass(hand.task, hand.run)
        views = [view for view in self.look_around() if view.due == "lost" and view.task is hand.task]
        (lost,) = filter(self.still_lost, views)
        match self.draw(evenly(["taken too late", "given up too late", "taken"])):
            case "taken too late":
                self.beat(hand)
                self.take_lost(lost, max_attempts=1)
            case "given up too late":
                self.take_lost(lost, max_attempts=1)
                self.beat(hand)
                self.give_up(self.views.pop())
            case "taken":
                self.take_lost(lost, max_attempts=self.draw(evenly([2, 3, 100])))
                self.beat(hand)

    # Cancellers

    @step("tasks")
    def cancel_any(self) -> None:
        self.cancel(self.pick(self.tasks), keep=self.draw(yes_or_no))

    @step("open_children", often=2)
    def cancel_child(self) -> None:
        """By its parent, of which the run may have been replaced meanwhile."""
        self.cancel(self.pick(self.open_children), keep=False, tell=False)

    @step("trees")
    def cancel_and_die(self) -> None:
        """The canceller dies between its first step and its walk below."""
        self.cancel_one(*self.look(self.pick(self.trees)), keep=False)

    @step("open_tasks")
    def see(self) -> None:
        """A slow canceller, or one who is to update, looks at the task."""
        self.looks.append(self.look(self.pick(self.open_tasks)))

    @step("looks", often=2)
    def cancel_what_was_seen(self) -> None:
        looked = self.pick(self.looks)
        self.looks.remove(looked)
        self.cancel_one(*looked, keep=self.draw(yes_or_no))

    @step("unclosed", often=2)
    def close_below(self) -> None:
        """A slow canceller goes on, or a sweeper does for one that died."""
        self.close(self.pick(self.unclosed))

    # Afterwards

    @invariant()
    def agrees(self) -> None:
        self.sound = False
        self.checks.all(self.model, snapshot(self.reader, but=("events", "input", "large", "children", "last_sweep")))
        self.sound = True

    def teardown(self) -> None:
        try:
            if self.sound:  # else what failed before is to be told
                self.drain()
        finally:
            self.go(self.client.aclose())
            self.loop.close()
            self.reader.close()

    def drain(self) -> None:
        """All workers, cancellers and bells are gone; a new worker and its sweeper do what is due until nothing is."""
        self.hands.clear()
        self.bells.clear()
        rounds = iter(range(50))
        while self.active or self.unclosed or self.expiries:
            assert next(rounds, None) is not None, "there is no end of it"
            for task, run in self.active:
                self.let_time_pass(task, run)
            for expiry in self.expiries:
                self.let_question_expire(*expiry)
            for task in self.unclosed:
                self.close(task)
            self.views = self.look_around()
            while self.views:
                self.deal_with(self.views.pop(), max_attempts=2)
            while self.bells:
                if hand := self.answer_bell(*self.bells.pop()):
                    self.end(hand, "success")
            self.agrees()
        lost = list(drained(self.model))
        assert not lost, lost


def walk(
    connect: Callable[[], Connections], *, examples: int, steps: int, shrink: bool = False, same: bool = False
) -> None:
    """Take random walks, each on an empty database; `same`: the same ones each time; `shrink` takes minutes."""
    run_state_machine_as_test(
        lambda: Machine(connect()),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=same,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            # Not Phase.explain: on Python 3.11 it traces each line of each walk.
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def on_server(url: str) -> Callable[[], Connections]:
    """A database of a real server that each walk empties; three times as quick as a fake one."""
    own = f"{url.rsplit('/', 1)[0]}/15"

    def connect() -> Connections:
        reader = redis.Redis.from_url(own)
        reader.flushdb()
        return Connections(lambda: redis.asyncio.Redis.from_url(own), reader)

    return connect


def fake_redis() -> Connections:
    server = fakeredis.FakeServer(version=(7,))
    return Connections(lambda: fakeredis.FakeAsyncRedis(server=server), fakeredis.FakeRedis(server=server))
