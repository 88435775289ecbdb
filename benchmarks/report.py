"""What the figures of `overhead.py` say: the targets, and the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from command import about, table, target

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MB = 2**20


def targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Each target with what was measured; `reached` is `None` where this machine does not tell."""
    one, talks = figures["one_at_a_time_ms"], figures["conversations"]
    rss = figures["sleepers"]["peak_rss_bytes"]
    throughput = figures["outrider"]["tasks_per_s"] / figures["bare"]["tasks_per_s"]
    return [
        target("throughput, share of bare Celery's", throughput, 0.25, at_least=True),
        target("one at a time, p50 above bare Celery's, ms", one["outrider"]["p50"] - one["bare"]["p50"], 15),
        target("one-second agents, wall time, s", figures["sleepers"]["wall_s"], 7),
        target("one-second agents, peak memory, MB", None if rss is None else rss / MB, 300),
        target("1 KB step of a long conversation, KB to Redis", max(t["bytes_in_per_step"] for t in talks) / 1024, 100),
        target("Redis' memory of it, times the conversation", max(t["memory_ratio"] for t in talks), 3),
        target("outrider --help, s", figures["help_s"], 0.3),
    ]


def shown(report: dict[str, Any]) -> tuple[RenderableType, ...]:
    """The report but its targets, to print."""
    machine, figures = report["machine"], report["figures"]
    libraries = ", ".join(f"{name} {number}" for name, number in machine["libraries"].items())
    where = f"{about(machine)}; {machine['system']}, Python {machine['python']}; {libraries}"
    return where, _comparison(figures), _alone(figures)


def _comparison(figures: dict[str, Any]) -> Table:
    bare, ours, one = figures["bare"], figures["outrider"], figures["one_at_a_time_ms"]
    rows = table("One worker process each, side by side", "", "bare Celery", "outrider")
    sent = bare["submits_per_s"]["send_task"]
    rows.add_row("submits per second, one after another", _n(sent), _n(ours["submits_per_s"]["sync"]))
    rows.add_row("submits per second, 16 in flight", "", _n(ours["submits_per_s"]["async"]))
    for cut in ("p50", "p99"):
        rows.add_row(f"one at a time, {cut}, ms", f"{one['bare'][cut]:.1f}", f"{one['outrider'][cut]:.1f}")
    rows.add_row("tasks per second from a backlog", _n(bare["tasks_per_s"]), _n(ours["tasks_per_s"]))
    names = {
        "commands": "Redis commands per task, with those in scripts",
        "reads": "socket reads of Redis per task",
        "bytes_in": "bytes to Redis per task",
        "bytes_out": "bytes from Redis per task",
        "dataset": "bytes kept in Redis per task",
    }
    for key, name in names.items():
        rows.add_row(name, _n(bare["redis_per_task"][key]), _n(ours["redis_per_task"][key]))
    return rows


def _alone(figures: dict[str, Any]) -> Table:
    rows = table("outrider alone", "", "figure")
    sleepers = figures["sleepers"]
    rows.add_row(f"{sleepers['count']:,} one-second agents in one process, s", f"{sleepers['wall_s']:.2f}")
    if sleepers["peak_rss_bytes"] is not None:
        rows.add_row("its peak memory, MB", _n(sleepers["peak_rss_bytes"] / MB))
    for talk in figures["conversations"]:
        what = f"1 KB step after {talk['messages']:,} messages of {talk['message_bytes']:,} bytes"
        rows.add_row(f"{what}, bytes to Redis", _n(talk["bytes_in_per_step"]))
        rows.add_row(f"memory after {talk['steps']} such steps, times the conversation", f"{talk['memory_ratio']:.2f}")
    rows.add_row("outrider --help, s", f"{figures['help_s']:.2f}")
    return rows


def _n(value: float) -> str:
    return f"{value:,.0f}"
