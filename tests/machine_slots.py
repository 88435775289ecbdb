"""A random walk through the slots of one agent: never more at work than there are, and nobody is forgotten.

Each answer of the store is compared with that of a model in plain Python.
"""

import asyncio
from dataclasses import dataclass

import fakeredis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from outrider.shared.context import Claim
from outrider.shared.statuses import EndedAs, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import Claimed, Ending, Facts, NotClaimed, Submission

LEASE_MS = 3_600_000
DONE = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS)
RUNS = 6
#: Where a run can be. `ending` is one that was cancelled while its code is still at work.
OUTSIDE, WAITS, KEPT, WORKS, ENDING, OVER = "outside", "waits", "kept", "works", "ending", "over"


@dataclass(eq=False)
class Run:
    number: int
    place: str = OUTSIDE
    claim: Claim | None = None
    asleep: bool = False  #: its lease ran out, and it is not declared lost

    @property
    def facts(self):
        return Facts(f"t{self.number}", "echo")

    @property
    def member(self):
        return f"t{self.number}/r{self.number}"


STEPS = []  #: name, where a run must be and what it must have, how often


def step(*places, having="facts", often=1):
    """Make a method a step of the walk; a rule each would not do, since Hypothesis leaves out some in each walk."""

    def mark(method):
        STEPS.append((method.__name__, places, having, often))
        return method

    return mark


class Slots(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.client = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(version=(7,)))
        self.store = Store(self.client, "s")
        self.slots_key = self.store.keys.slots("echo")
        self.runs = [Run(number) for number in range(RUNS)]
        self.slots = 0  #: how many there are, once the walk has begun
        self.sound = False  #: the last step went well

    def go(self, work):
        return self.loop.run_until_complete(work)

    def at(self, *places):
        return [run for run in self.runs if run.place in places]

    @initialize(slots=st.integers(1, 3))
    def begin(self, slots):
        self.slots = slots
        for run in self.runs:
            name = f"t{run.number}"
            self.go(
                self.store.submit(
                    Submission(
                        task_id=name, run_id=f"r{run.number}", agent="echo", title=name, queue="subagents", input={}
                    )
                )
            )
            self.go(self.client.hset(self.store.keys.run(f"r{run.number}"), "created_ms", 1000 + run.number))

    def pick(self, *places, having="facts"):
        return self.draw(st.sampled_from([run for run in self.at(*places) if getattr(run, having)]))

    @rule(data=st.data())
    def go_on(self, data):
        self.draw, self.sound = data.draw, False
        possible = [
            name
            for name, places, having, often in STEPS
            if any(getattr(run, having) for run in self.at(*places))
            for _ in range(often)
        ]
        if possible:
            getattr(self, self.draw(st.sampled_from(possible)))()

    @step(OUTSIDE, WAITS, KEPT, often=4)
    def answer_bell(self):
        self.bell(self.pick(OUTSIDE, WAITS, KEPT))

    def bell(self, run):
        free = self.slots - len(self.at(KEPT, WORKS, ENDING))
        before = [one for one in self.at(WAITS) if one.number < run.number]
        expected = run.place == KEPT or len(before) < free
        claimed = self.go(
            self.store.claim(run.facts, f"r{run.number}", worker="w", lease_ms=LEASE_MS, slots=self.slots)
        )
        if isinstance(claimed, Claimed):
            run.place, run.claim = WORKS, claimed.claim
        else:
            run.place = WAITS
            assert claimed == NotClaimed("waits")
        assert (run.place == WORKS) == expected

    @step(WAITS, often=3)
    def admit(self):
        free = max(0, self.slots - len(self.at(KEPT, WORKS, ENDING)))
        expected = self.at(WAITS)[:free]
        bells = self.go(self.store.admit({"echo": self.slots}, lease_ms=LEASE_MS))
        assert [bell.task_id for bell in bells] == [run.facts.task_id for run in expected]
        for run in expected:
            run.place = KEPT

    @step(KEPT)
    def nobody_answers(self):
        run = self.pick(KEPT)
        self.go(self.client.zadd(self.slots_key, {run.member: 1}))
        run.place = OUTSIDE

    @step(WORKS, often=3)
    def end(self):
        how = self.draw(st.sampled_from(["settle", "give back"]))
        run = self.pick(WORKS)
        if how == "settle":
            assert self.go(self.store.settle(run.claim, DONE))
        else:
            assert self.go(self.store.give_back(run.claim))
        run.place, run.asleep = (OVER if how == "settle" else OUTSIDE), False

    @step(WORKS, ENDING)
    def oversleep(self):
        run = self.pick(WORKS, ENDING)
        self.go(self.client.zadd(self.slots_key, {run.member: 1}))
        self.go(self.client.zadd(self.store.keys.leases(), {run.member: 1}))
        self.go(self.client.hset(self.store.keys.run(f"r{run.number}"), "lease_until_ms", 1))
        run.asleep = True

    @step(WORKS, ENDING, having="asleep", often=3)
    def wake_or_be_lost(self):
        run = self.pick(WORKS, ENDING, having="asleep")
        run.asleep = False
        if self.draw(st.booleans()):
            assert self.go(self.store.heartbeat([run.claim], lease_ms=LEASE_MS)) == [run.place == WORKS]
        elif run.place == ENDING:
            assert self.go(self.store.stopped(run.claim, only_expired=True))
            run.place = OVER
        else:
            record = self.go(self.store.get_run(f"r{run.number}"))
            assert self.go(self.store.take_lost(Claim.of(run.facts, record), max_attempts=10**6)) == "released"
            run.place = OUTSIDE

    @step(OUTSIDE, WAITS, KEPT, having="claim", often=3)
    def beat_late(self):
        """A worker that lost its claim is heard of again."""
        run = self.pick(OUTSIDE, WAITS, KEPT, having="claim")
        before = self.go(self.client.zrange(self.slots_key, 0, -1, withscores=True))
        assert self.go(self.store.heartbeat([run.claim], lease_ms=LEASE_MS)) == [False]
        assert self.go(self.client.zrange(self.slots_key, 0, -1, withscores=True)) == before

    @step(OUTSIDE, WAITS, KEPT, WORKS)
    def cancel(self):
        run = self.pick(OUTSIDE, WAITS, KEPT, WORKS)
        self.go(self.store.cancel(run.facts.task_id))
        run.place = ENDING if run.place == WORKS else OVER

    @step(ENDING)
    def code_ends(self):
        run = self.pick(ENDING)
        assert self.go(self.store.stopped(run.claim))
        run.place, run.asleep = OVER, False

    @invariant()
    def no_more_than_the_slots(self):
        if self.slots:
            self.sound = False
            assert len(self.at(WORKS, ENDING)) <= self.slots
            there = {member.decode() for member in self.go(self.client.zrange(self.slots_key, 0, -1))}
            known = {run.member for run in self.at(WAITS, KEPT, WORKS, ENDING)}
            assert known <= there <= known | {run.member for run in self.at(OUTSIDE)}
            self.sound = True

    def teardown(self):
        try:
            if self.sound:  # else what failed before is to be told
                self.drain()
        finally:
            self.go(self.client.aclose())
            self.loop.close()

    def drain(self):
        """Each run comes to its turn when workers answer what is rung, and nothing is left."""
        for run in self.at(ENDING):
            self.go(self.store.stopped(run.claim))
            run.place = OVER
        while open_runs := self.at(OUTSIDE, WAITS, KEPT, WORKS):
            self.admit()
            for run in self.at(WORKS):
                self.go(self.store.settle(run.claim, DONE))
                run.place = OVER
            for run in self.at(KEPT, OUTSIDE):
                self.bell(run)
            assert self.at(WORKS) or len(self.at(OUTSIDE, WAITS, KEPT, WORKS)) < len(open_runs), "nobody comes next"
        assert not self.go(self.client.exists(self.slots_key))


def walk():
    """Take random walks, the same ones each time."""
    run_state_machine_as_test(
        Slots,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
