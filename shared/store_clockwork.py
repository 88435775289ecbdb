"""The store's clockwork keeps runs alive or takes them back: leases, overdue bells, code that stopped, slots."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from .limits import Usage
from .store_base import StoreBase, pairs_of
from .transitions import Due, flat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .bells import Bell
    from .context import Claim
    from .records import Fault
    from .scripts import Argument
    from .transitions import Event, Facts

# The pause before another attempt doubles with each error since the last new checkpoint. A run waits a random part of
# it, at least half: else all that one outage stopped would come back together.
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 2_000, 60_000
#: How many workers one run may lose in all, however many checkpoints lie between. A worker that is told to stop gives
#: its runs back, so this many losses are no bad luck: the run itself kills its workers.
MAX_LOSSES = 20
#: What `release.lua` is given where the run is not tried again after an error.
NO_RETRY: dict[str, Argument] = dict.fromkeys(
    ("error_type", "error_json", "error_message", "least_ms", "first_ms", "longest_ms", "part"), ""
)
SWEEP_PAGE = 100  #: members that one sweep looks at, of each kind


class Clockwork(StoreBase):
    """The part of the store that heartbeats and sweepers use."""

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, used: Mapping[str, Usage] | None = None
    ) -> list[bool]:
        """Renew the leases of claims in one script; tell for each whether it still holds.

        `used` has, by run ids, what tasks used by now.
        """
        keys = [self.keys.leases()]
        args: list[Any] = [lease_ms]
        for claim in claims:
            keys += [self.keys.task(claim.task_id), self.keys.run(claim.run_id), self.keys.slots(claim.facts.agent)]
            usage = used.get(claim.run_id) if used else None
            args += [claim.task_id, claim.run_id, claim.epoch, claim.token, usage.model_dump_json() if usage else ""]
        return [bool(flag) for flag in await self._scripts("heartbeat", keys, args)]

    async def give_back(self, claim: Claim, usage: Usage | None = None, events: Sequence[Event] = ()) -> bool:
        """Return a claimed run to `pending`, same attempt, with the task's usage and the events so far.

        `False`: it was replaced.
        """
        return (await self._release(claim, "given_back", usage=usage, events=events))[0] == "released"

    async def retry(
        self,
        claim: Claim,
        error: Fault,
        *,
        least_ms: int,
        max_attempts: int,
        usage: Usage | None = None,
        events: Sequence[Event] = (),
    ) -> tuple[str, int]:
        """Return a claimed run to `pending` for another attempt after an error, attempt + 1, with a pause before it.

        Returns `released` and the pause in ms, at least `least_ms`; `refused` (it was replaced); or `exhausted` where
        no attempt is left: then nothing was changed, and the caller settles it. The caller rings no bell: a sweeper
        does when the pause is over.
        """
        return await self._release(
            claim,
            "retried",
            max_attempts=max_attempts,
            usage=usage,
            events=events,
            retry={
                "error_type": error.type,
                "error_json": json.dumps(error.type),
                "error_message": error.message,
                "least_ms": least_ms,
                "first_ms": FIRST_PAUSE_MS,
                "longest_ms": LONGEST_PAUSE_MS,
                "part": random.uniform(0.5, 1),  # noqa: S311 no secret
            },
        )

    async def take_lost(self, claim: Claim, *, max_attempts: int) -> str:
        """Return a run whose lease ran out to `pending`, attempt + 1.

        Returns `released`, `refused` (it was renewed or ended meanwhile), or `exhausted` where no attempt is left:
        then nothing was changed, and the caller settles it. The task's own `max_attempts` goes before the argument.
        """
        return (await self._release(claim, "lost", max_attempts=max_attempts))[0]

    async def _release(
        self,
        claim: Claim,
        how: str,
        *,
        max_attempts: int = 0,
        usage: Usage | None = None,
        events: Sequence[Event] = (),
        retry: Mapping[str, Argument] = NO_RETRY,
    ) -> tuple[str, int]:
        reply = await self._scripts(
            "release",
            self._task_keys(claim.facts, claim.run_id),
            {
                "task_id": claim.task_id,
                "run_id": claim.run_id,
                "how": how,
                "epoch": claim.epoch,
                "token": claim.token,
                "ring_again_ms": self._ring_again_ms,
                "usage": usage.model_dump_json() if usage else "",
                "max_attempts": max_attempts,
                "max_losses": MAX_LOSSES,
                **retry,
            },
            flat(events),
        )
        return reply[0].decode(), int(reply[1]) if len(reply) > 1 else 0

    async def stopped(self, claim: Claim, usage: Usage | None = None, *, only_expired: bool = False) -> bool:
        """Note that the code of a cancelled run has really ended, with the task's usage. A second call changes nothing.

        `False`: the run was not cancelled, or under a later claim; with `only_expired` also where its lease is good.
        """
        args: dict[str, Argument] = {
            "task_id": claim.task_id,
            "run_id": claim.run_id,
            "epoch": claim.epoch,
            "token": claim.token,
            "only_expired": int(only_expired),
            "usage": usage.model_dump_json() if usage else "",
            "late_seen": "",
            "late": "",
        }
        while True:
            status, *rest = await self._scripts("stopped", self._task_keys(claim.facts, claim.run_id), args)
            if status != b"late" or usage is None:
                return bool(status == b"stopped")
            noted, others = (Usage.model_validate_json(text or b"{}") for text in rest)
            args |= {"late_seen": rest[1], "late": others.plus(usage.minus(noted)).model_dump_json()}

    async def sweep(self, *, lease_ms: int, every_ms: float = 0) -> Due:
        """Which leases ran out, which bells are overdue and which questions expired, a page of each.

        Any number of processes may ask, each once in `every_ms` or so. When none did for two such rounds, and half a
        lease, no lease is declared lost for one lease.
        """
        keys = [self.keys.last_sweep(), self.keys.leases(), self.keys.ring_at(), self.keys.answer_until()]
        pause = max(lease_ms / 2, 2 * every_ms)
        return Due(*map(pairs_of, await self._scripts("sweep", keys, [lease_ms, SWEEP_PAGE, pause])))

    async def unclosed(self, *, older_than_ms: int) -> tuple[str, ...]:
        """Tasks that were cancelled so long ago and whose descendants are not all closed: the canceller may be gone."""
        before = await self.now_ms() - older_than_ms
        members = await self.redis.zrangebyscore(self.keys.closing(), "-inf", before, start=0, num=SWEEP_PAGE)
        return tuple(member.decode() for member in members)

    async def ring_again(self, facts: Facts, run_id: str) -> bool:
        """Whether the caller is to ring this overdue bell now; the next ring comes twice as late each time."""
        reply = await self._scripts(
            "ring_again", self._task_keys(facts, run_id), [facts.task_id, run_id, self._ring_again_ms]
        )
        return bool(reply[0] == b"ring")

    async def admit(self, slots: Mapping[str, int], *, lease_ms: int) -> tuple[Bell, ...]:
        """Keep the slots that are free for the runs that wait for them longest; the caller rings their bells.

        `slots` says, by agents' names, how many there are (0: no bound). Each is kept for `lease_ms` until its bell is
        answered; then it is free again. To a second call the kept slots are taken.
        """
        if not slots:
            return ()
        members = await self._scripts(
            "admit",
            [self.keys.leases(), self.keys.ring_at(), *(self.keys.slots(agent) for agent in slots)],
            [lease_ms, self._ring_again_ms, SWEEP_PAGE, *slots.values()],
        )
        bells = [await self.bell_of(task_id, run_id) for task_id, run_id in pairs_of(members)]
        return tuple(bell for bell in bells if bell is not None)

    async def put_off(self, index: str, member: str, milliseconds: int) -> None:
        """Make a member of one of the clockwork's sets due only after so long, if it is still there."""
        await self.redis.zadd(index, {member: await self.now_ms() + milliseconds}, xx=True, gt=True)

    async def forget_member(self, member: str) -> None:
        """Take a run whose task is gone off the clockwork."""
        await self.redis.zrem(self.keys.leases(), member)
        await self.redis.zrem(self.keys.ring_at(), member)
        await self.redis.zrem(self.keys.answer_until(), member)
