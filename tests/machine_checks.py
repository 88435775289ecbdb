"""What must hold after every step of the machine: the records are the model's, and the promises hold in themselves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outrider.shared.statuses import ASKING, RESTING, RunStatus, Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import redis

    from machine_model import Model, Task
    from outrider.shared.keys import Keys

READS = {
    "task": "hgetall",
    "run": "hgetall",
    "last_sweep": "hgetall",
    "runs": "lrange",
    "follow_ups": "lrange",
    "input": "get",
    "large": "hgetall",
    "events": "xlen",
    "inbox": "xrange",
    "answers": "hgetall",
    "open": "smembers",
    "snapshots": "hgetall",
    "delivery": "hgetall",
}  #: everything else is a sorted set
RANGE = {"lrange": (0, -1), "zrange": (0, -1, False, True)}

Snapshot = dict[str, Any]


def snapshot(reader: redis.Redis, but: Collection[str] = ()) -> Snapshot:
    """All that the database holds but some kinds of keys, read in two round trips."""
    names = sorted(name for key in reader.keys("*") if (name := key.decode()).split(":")[1] not in but)
    pipe = reader.pipeline(transaction=False)
    for name in names:
        command = READS.get(name.split(":")[1], "zrange")
        getattr(pipe, command)(name, *RANGE.get(command, ()))
    return dict(zip(names, pipe.execute(), strict=True))


class Checks:
    """Holds what a snapshot alone cannot tell: how runs ended before."""

    def __init__(self, keys: Keys, agent: str) -> None:
        self.keys = keys
        self.agent = agent
        self.ended: dict[str, str] = {}

    def all(self, model: Model, seen: Snapshot) -> None:
        self._records(model, seen)
        self._indexes(model, seen)
        self._deliveries(model, seen)
        for task in model.tasks:
            self._inbox(task, seen)
            self._promises(self._record(task, seen), task, seen)
        self._conversations(model, seen)
        self._endings(seen)

    def _record(self, task: Task, seen: Snapshot) -> dict[str, str]:
        return _text(seen[self.keys.task(task.name)])

    def _records(self, model: Model, seen: Snapshot) -> None:
        for task in model.tasks:
            record = self._record(task, seen)
            assert (record["status"], record["phase"]) == (task.state[0], task.state[1] or ""), task.name
            assert record["run_id"] == (task.run.run_id if task.run else ""), task.name
            numbers = [int(record.get(name, 0)) for name in ("seq", "given", "cursor")]
            assert numbers == [len(task.inbox), task.given, len(task.saved)], task.name
            if task.run:
                assert int(record.get("attempt", 0)) == task.run.attempt, task.name
            assert record.get("asks", "").split() == task.open_questions or task.state != ASKING, task.name
            waiting = [json.loads(given)["text"] for given in seen.get(self.keys.follow_ups(task.name), ())]
            assert waiting == task.follow_ups, task.name
            assert int(record.get("follow_ups", 0)) == len(waiting), task.name
            runs = [run_id.decode() for run_id in seen[self.keys.runs(task.name)]]
            assert runs == [run.run_id for run in task.runs], task.name
            for run in task.runs:
                fields = _text(seen[self.keys.run(run.run_id)])
                assert (fields["status"], int(fields["attempt"])) == (run.status, run.attempt), run.run_id
                assert (fields.get("ended_as") == "rested") == run.rested, run.run_id

    def _indexes(self, model: Model, seen: Snapshot) -> None:
        names = {task.name for task in model.tasks}
        assert self._members(self.keys.tasks(), seen) == self._members(self.keys.agent(self.agent), seen) == names
        roots = {task.name for task in model.tasks if not task.parent}
        assert self._members(self.keys.trees(), seen) == roots, "retention would never look at it"
        for status in Status:
            names = {task.name for task in model.tasks if task.state[0] is status}
            assert self._members(self.keys.status(status), seen) == names
        assert self._members(self.keys.closing(), seen) == {task.name for task in model.unclosed}
        expiries = {f"{task.name}/{run_id}" for task, run_id in model.expiries}
        assert self._members(self.keys.answer_until(), seen) == expiries
        runs = [(task, run) for task in model.tasks for run in task.runs]
        pending = {f"{t.name}/{run.run_id}" for t, run in runs if run is t.run and run.status is RunStatus.PENDING}
        held = {f"{task.name}/{run.run_id}" for task, run in runs if run.slot}
        assert self._members(self.keys.ring_at(), seen) == pending, "nobody would ring it again"
        assert self._members(self.keys.leases(), seen) == held, "nobody would miss it"
        slots = {f"{task.name}/{run.run_id}" for task, run in runs if run.slot and not run.grades}
        assert self._members(self.keys.slots(self.agent), seen) == slots

    def _deliveries(self, model: Model, seen: Snapshot) -> None:
        """A webhook is told of each end, by the agent's run that brought it, and of nothing else."""
        runs = {f"{task.name}/{run.run_id}": run for task in model.tasks for run in task.runs}
        written = {member for member, run in runs.items() if self.keys.delivery(run.run_id) in seen}
        assert self._members(self.keys.deliveries(), seen) == written, "nobody would send it"
        for task in model.tasks:
            last = next(run for run in reversed(task.runs) if not run.grades)
            delivery = _text(seen.get(self.keys.delivery(last.run_id), {}))
            told = f"{task.name}:{last.run_id}:{task.state[0]}" if task.ended and not task.run else None
            assert delivery.get("id") == told, task.name

    def _inbox(self, task: Task, seen: Snapshot) -> None:
        entries = seen.get(self.keys.inbox(task.name), [])
        kept = range(task.trimmed, len(task.inbox))
        assert [entry_id for entry_id, _ in entries] == [f"{i + 1}-0".encode() for i in kept]
        notes = [(json.loads(fields[b"note"])["id"], int(fields[b"open"])) for _, fields in entries]
        assert notes == [(task.inbox[i].id, task.inbox[i].open_children) for i in kept]
        assert len({note for note, _ in notes}) == len(notes), "told twice"
        assert self._open(task, seen) == {child.name for child in task.open_children}

    def _open(self, task: Task, seen: Snapshot) -> set[str]:
        return {member.decode() for member in seen.get(self.keys.open_children(task.name), ())}

    def _promises(self, record: dict[str, str], task: Task, seen: Snapshot) -> None:
        """Read from the records alone, so that a mistake which the model shares is found too."""
        status, phase = Status(record["status"]), record["phase"]
        news = int(record.get("seq", 0)) > int(record.get("given", 0))
        wakeable = status in {Status.SUCCESS, Status.ERROR, Status.IDLE} or (status, phase) == RESTING
        assert not (wakeable and news), f"{task.name} rests on news"
        assert not (status.terminal and record["run_id"]), f"{task.name} ended with an active run"
        assert not (status.terminal and self.keys.follow_ups(task.name) in seen), f"{task.name} left a message unread"
        if (status, phase) == RESTING and not task.cut:
            assert self._open(task, seen), f"{task.name} rests and nothing will wake it"
        if status is Status.SUCCESS:
            assert task.saved == task.inbox, f"{task.name} is done without having read all"

    def _conversations(self, model: Model, seen: Snapshot) -> None:
        """Conversations that forks begin with lie there as long as a run is to begin with one, and no longer."""
        begin = [task.root for task in model.tasks for run in task.runs if b"fork" in seen[self.keys.run(run.run_id)]]
        begin += [task.root for task in model.tasks if b"unsaved_fork" in seen[self.keys.task(task.name)]]
        for task in model.tasks:
            kept = seen.get(self.keys.snapshots(task.name), {})
            assert int(kept.get(b"runs", 0)) == begin.count(task), task.name
            assert bool(kept) == (task in begin), task.name

    def _endings(self, seen: Snapshot) -> None:
        for name, fields in seen.items():
            if name.startswith(self.keys.run("")):
                status = fields[b"status"].decode()
                assert self.ended.get(name, status) == status, f"{name} had ended"
                if status not in {RunStatus.PENDING, RunStatus.RUNNING}:
                    self.ended[name] = status

    @staticmethod
    def _members(key: str, seen: Snapshot) -> set[str]:
        return {member.decode() for member, _ in seen.get(key, ())}


def drained(model: Model) -> Iterator[str]:
    """Each task that was lost: nothing is due, yet it neither ended nor waits for a person, itself or below."""
    for task in model.tasks:
        if not (task.ended or _waits(task)):
            yield f"{task.name} is {task.state}"


def _waits(task: Task) -> bool:
    if task.state[0] is Status.WAITING:
        return True
    return task.state == RESTING and any(_waits(child) for child in task.open_children)


def _text(fields: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in fields.items()}
