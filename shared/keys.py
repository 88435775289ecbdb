"""The key map: every key of a namespace, computed from ids. Scripts are handed keys, never build them.

The braces make one namespace one hash slot, which is the unit of sharding on a Redis cluster.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from .statuses import Status


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of all keys under `{namespace}:`."""

    namespace: str

    def _key(self, *parts: str) -> str:
        return f"{{{self.namespace}}}:{':'.join(parts)}"

    # one task
    def task(self, task_id: str) -> str:
        """Hash: the task's record; also what fences every write (`run_id`, `epoch`, `token`)."""
        return self._key("task", task_id)

    def runs(self, task_id: str) -> str:
        """List: the task's run ids, oldest first."""
        return self._key("runs", task_id)

    def large(self, task_id: str) -> str:
        """Hash: what of the task may be large, as JSON: `context`, `configurable`, `interrupts`, `result`, `unsaved`.

        So are its `rubric` and, as text, the `request` that it is graded by. Apart from the record, which lists and
        walks read whole.
        """
        return self._key("large", task_id)

    def events(self, task_id: str) -> str:
        """Stream: the task's events, bounded."""
        return self._key("events", task_id)

    def inbox(self, task_id: str) -> str:
        """Stream: numbered notifications, ids `<seq>-0`."""
        return self._key("inbox", task_id)

    def answers(self, task_id: str) -> str:
        """Hash: answers to what the task asks, until the last one came; and which question each call answered."""
        return self._key("answers", task_id)

    def children(self, task_id: str) -> str:
        """Sorted set: child task ids by creation."""
        return self._key("children", task_id)

    def open_children(self, task_id: str) -> str:
        """Set: children that have not ended and whose end will be told to this task."""
        return self._key("open", task_id)

    def snapshots(self, root_id: str) -> str:
        """Hash: items of the snapshots that forks in a tree begin with, and `runs`: how many are still to begin."""
        return self._key("snapshots", root_id)

    def follow_ups(self, task_id: str) -> str:
        """List: what the task's next runs will be given, as JSON, the next one first."""
        return self._key("follow_ups", task_id)

    def remains(self, task_id: str) -> str:
        """Hash: the record of a hidden task, until everything else of it is removed."""
        return self._key("remains", task_id)

    def of_task(self, task_id: str) -> list[str]:
        """The keys of a task besides its record, its runs, its checkpoints, and its files."""
        return [
            self.runs(task_id),
            self.large(task_id),
            self.events(task_id),
            self.inbox(task_id),
            self.answers(task_id),
            self.children(task_id),
            self.open_children(task_id),
            self.snapshots(task_id),
            self.follow_ups(task_id),
        ]

    # one run
    def run(self, run_id: str) -> str:
        """Hash: the run's record."""
        return self._key("run", run_id)

    def input(self, run_id: str) -> str:
        """String: what the run was given, as JSON."""
        return self._key("input", run_id)

    def delivery(self, run_id: str) -> str:
        """Hash: the delivery to the task's webhook of the end that this run brought."""
        return self._key("delivery", run_id)

    # indexes
    def tasks(self) -> str:
        """Sorted set: all task ids by creation."""
        return self._key("tasks")

    def trees(self) -> str:
        """Sorted set: roots of trees by the Unix ms at which something last happened there, as far as anyone looked."""
        return self._key("trees")

    def condemned(self) -> str:
        """Sorted set: hidden tasks that are still to be removed, by the moment when they were hidden."""
        return self._key("condemned")

    def status(self, status: Status) -> str:
        """Sorted set: task ids of one status by creation."""
        return self._key("status", status.value)

    def statuses(self) -> list[str]:
        """The status indexes in the order in which scripts expect them."""
        return list(_statuses(self.namespace))

    def agent(self, agent: str) -> str:
        """Sorted set: task ids of one agent by creation."""
        return self._key("agent", agent)

    def idempotency(self, key: str) -> str:
        """Hash: task, run and hash of the payload of the submit that used this key."""
        return self._key("once", hashlib.sha256(key.encode()).hexdigest())

    # the clockwork
    def leases(self) -> str:
        """Sorted set: `task_id/run_id` by the Unix ms at which the lease runs out."""
        return self._key("leases")

    def ring_at(self) -> str:
        """Sorted set: `task_id/run_id` by the Unix ms at which the bell is rung again."""
        return self._key("ring_at")

    def answer_until(self) -> str:
        """Sorted set: `task_id/run_id` of runs that asked, by the Unix ms until which an answer may come."""
        return self._key("answer_until")

    def deliveries(self) -> str:
        """Sorted set: `task_id/run_id` of deliveries to webhooks, by the Unix ms of the next attempt."""
        return self._key("deliveries")

    def undelivered(self) -> str:
        """Sorted set: `task_id/run_id` of those that were given up, by when."""
        return self._key("undelivered")

    def slots(self, agent: str) -> str:
        """Sorted set: `task_id/run_id` of one agent's runs that have a slot or wait for one (`lua/slots.lua`)."""
        return self._key("slots", agent)

    def closing(self) -> str:
        """Sorted set: cancelled tasks whose descendants are still to be closed, by when they were cancelled."""
        return self._key("closing")

    def last_sweep(self) -> str:
        """Hash: Unix ms of the last sweep by anyone, and until when nobody is declared lost."""
        return self._key("last_sweep")

    def control(self) -> str:
        """Channel: run ids whose code must stop now."""
        return self._key("control")

    def catalogue(self) -> str:
        """Hash: what each worker process has published, as JSON."""
        return self._key("catalogue")

    # checkpoints
    def thread(self, thread_id: str, *parts: str) -> str:
        """Keys of one thread's checkpoints; the saver names the parts."""
        return self._key("ckpt", thread_id, *parts)

    def threads(self) -> str:
        """Set: ids of all threads that have checkpoints."""
        return self._key("ckpt")

    # files
    def files(self) -> list[str]:
        """The file store's keys in the order in which its script expects them."""
        return [self._key("files", part) for part in ("seq", "heads", "values", "order", "spaces", "expires")]


@cache
def _statuses(namespace: str) -> tuple[str, ...]:
    # Every transition names them all.
    keys = Keys(namespace)
    return tuple(keys.status(status) for status in Status)
