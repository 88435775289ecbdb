"""`outrider doctor` examines Redis, the broker, workers and tasks; it reports facts, and findings with remedies."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import NoPermissionError

from ..shared import catalogue
from ..shared.broker import BrokerUnreachable
from ..shared.connections import connect, reachable
from ..shared.redis_checks import Finding, Level, check_redis
from ..shared.settings import mask_url
from ..shared.store import Store
from .doctor_tasks import check_deliveries, check_tasks, read_tasks
from .doctor_workers import Fleet, check_fleet, read_fleet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..shared.catalogue import Published
    from ..shared.settings import Settings

PINGS: Final = 50
SLOW_MS: Final = 10.0  #: of a PING, median: a step of a run takes a few round trips


@dataclass(frozen=True, slots=True)
class Report:
    """What `doctor` saw, and what is wrong."""

    facts: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """`{ok, findings: [{level, what, remedy}], facts}`; `ok` is whether nothing was found."""
        return {"ok": not self.findings, "findings": [asdict(one) for one in self.findings], "facts": self.facts}


async def examine(settings: Settings) -> Report:
    """Look at everything once, and change nothing. `RedisUnreachable` without Redis; without a broker, a finding."""
    with reachable(settings):
        async with connect(settings, size=1) as redis:
            store = Store(redis, settings.namespace)
            info = await _info(redis)
            pings = [await _ping(redis) for _ in range(PINGS)]
            agents = (await catalogue.read(redis, store.keys)).agents
            tasks = await read_tasks(store)
            troubles = await store.troubles()
    findings = [*check_access(info), *check_redis(info), *check_latency(pings), *check_agents(agents)]
    fleet: Fleet | None = None
    try:
        fleet = await read_fleet(settings, (agent.queue for agent in agents.values()), tasks.queues())
    except BrokerUnreachable as error:
        findings.append(Finding(Level.ERROR, str(error), "start it, or set OUTRIDER_BROKER_URL to one that is up"))
    else:
        findings += check_fleet(fleet)
    workers, unserved = (True, frozenset[str]()) if fleet is None else (bool(fleet.workers), fleet.unserved)
    findings += check_tasks(tasks, settings, workers=workers, unserved=unserved)
    findings += check_deliveries(troubles)
    return Report(
        {
            "redis": _redis_facts(settings, info, pings),
            "broker": {"url": mask_url(settings.broker), "reachable": fleet is not None},
            "namespace": settings.namespace,
            "workers": [asdict(worker) for worker in fleet.workers] if fleet else [],
            "queues": [asdict(queue) for queue in fleet.queues] if fleet else [],
            "agents": [{"name": one.name, "queue": one.queue, "broken": one.broken} for one in agents.values()],
            "tasks": tasks.facts(),
        },
        tuple(findings),
    )


async def _info(redis: Any) -> dict[str, Any]:
    """Redis' `INFO`; empty where the user may not ask for it."""
    try:
        return dict(await redis.info())
    except NoPermissionError:
        return {}


async def _ping(redis: Any) -> float:
    began = time.perf_counter()
    await redis.ping()
    return (time.perf_counter() - began) * 1000


def _percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def check_access(info: Mapping[str, Any]) -> Iterator[Finding]:
    """A finding where the user may not read `INFO`."""
    if not info:
        yield Finding(
            Level.WARNING,
            "this Redis user may not read INFO: version, persistence and memory were not checked",
            "ACL SETUSER NAME +info",
        )


def check_latency(pings: list[float]) -> Iterator[Finding]:
    """A finding where Redis, or the way to it, is slow; from PINGs in milliseconds."""
    median = _percentile(pings, 0.5)
    if median > SLOW_MS:
        yield Finding(
            Level.WARNING,
            f"Redis takes {median:.0f} ms to answer a PING: every step of every run waits for it",
            "bring workers and Redis nearer together; look at `redis-cli --latency` and SLOWLOG",
        )


def check_agents(agents: Mapping[str, Published]) -> Iterator[Finding]:
    """A finding for each agent that a worker could not build."""
    for agent in agents.values():
        if agent.broken:
            yield Finding(
                Level.ERROR,
                f"agent {agent.name} is broken: {agent.broken}",
                "mend it and start the workers anew; until then its tasks end as error",
            )


def _redis_facts(settings: Settings, info: Mapping[str, Any], pings: list[float]) -> dict[str, Any]:
    return {
        "url": mask_url(settings.redis_url),
        "version": info.get("redis_version"),
        "append_only_file": bool(info["aof_enabled"]) if "aof_enabled" in info else None,
        "eviction": info.get("maxmemory_policy"),
        "used_memory_bytes": info.get("used_memory"),
        "max_memory_bytes": info.get("maxmemory") or None,
        "ping_ms": {"p50": round(_percentile(pings, 0.5), 2), "p99": round(_percentile(pings, 0.99), 2)},
    }
