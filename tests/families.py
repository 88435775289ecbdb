"""A tree of tasks in the store, whose runs are claimed and settled by name."""

from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.transitions import Ending, Facts, Submission

LEASE_MS = 30_000
DONE = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"found it"')
FAILED = Ending(RunStatus.ERROR, EndedAs.FAILED, Status.ERROR, error_type="ValueError", error_message="secret")
TIMED_OUT = Ending(RunStatus.TIMEOUT, EndedAs.TIMED_OUT, Status.TIMEOUT)
ASKS = Ending(RunStatus.SUCCESS, EndedAs.PAUSED, Status.WAITING, task_phase=Phase.ASKING)


def submission(path, **fields):
    """One more task of a tree, named by its path: `r/a/b` is `b`, a child of `a`."""
    *above, name = path.split("/")
    values = {
        "task_id": name,
        "run_id": f"{name}-1",
        "agent": "echo",
        "title": "echo",
        "queue": "subagents",
        "input": {},
        "parent_id": above[-1] if above else None,
        "ancestors": tuple(above),
    }
    return Submission(**values | fields)


class Tree:
    """Submits and runs tasks by name, as a client and a worker would."""

    def __init__(self, store):
        self.store = store
        self.paths = {}

    def facts(self, name):
        path = self.paths[name]
        return Facts(name, "echo", "echo", path[-1] if path else None, path)

    async def submit(self, name, parent=None, claim=None, snapshot=None, **changes):
        self.paths[name] = (*self.paths[parent], parent) if parent else ()
        return await self.store.submit(submission("/".join((*self.paths[name], name)), **changes), claim, snapshot)

    async def claim(self, name="t"):
        run_id = (await self.store.peek(name)).run_id
        return await self.store.claim(self.facts(name), run_id, worker="w", lease_ms=LEASE_MS)

    async def settle(self, claim, ending=DONE, **how):
        return await self.store.settle(claim, ending, **how)

    async def run(self, name="t", ending=DONE):
        return await self.settle((await self.claim(name)).claim, ending)

    async def state(self, name="t"):
        task = await self.store.peek(name)
        return task.phase or task.status

    async def working_parent(self, *children):
        await self.submit("p")
        held = await self.claim("p")
        for child in children:
            await self.submit(child, "p", held.claim)
        return held.claim

    async def resting_parent(self, *children):
        claim = await self.working_parent(*children)
        await self.settle(claim)
        assert await self.state("p") == Phase.RESTING
