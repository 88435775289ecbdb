"""What the figures say: the targets, and the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

MB = 2**20


def targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Each target with what was measured; `reached` is `None` where this machine does not tell."""
    one, talks = figures["one_at_a_time_ms"], figures["conversations"]
    rss = figures["sleepers"]["peak_rss_bytes"]
    throughput = figures["outrider"]["tasks_per_s"] / figures["bare"]["tasks_per_s"]
    return [
        _target("throughput, share of bare Celery's", throughput, 0.25, at_least=True),
        _target("one at a time, p50 above bare Celery's, ms", one["outrider"]["p50"] - one["bare"]["p50"], 15),
        _target("one-second agents, wall time, s", figures["sleepers"]["wall_s"], 7),
        _target("one-second agents, peak memory, MB", None if rss is None else rss / MB, 300),
        _target(
            "1 KB step of a long conversation, KB to Redis", max(t["bytes_in_per_step"] for t in talks) / 1024, 100
        ),
        _target("Redis' memory of it, times the conversation", max(t["memory_ratio"] for t in talks), 3),
        _target("outrider --help, s", figures["help_s"], 0.3),
    ]


def _target(name: str, value: float | None, bound: float, *, at_least: bool = False) -> dict[str, Any]:
    reached = None if value is None else (value >= bound if at_least else value <= bound)
    shown = None if value is None else round(value, 3)
    return {"name": name, "value": shown, "bound": bound, "at_least": at_least, "reached": reached}


def show(report: dict[str, Any]) -> None:
    """Print the report: coloured on a terminal, plain in a pipe."""
    console = Console(width=None if Console().is_terminal else 110)
    console.print(Group(_machine(report), _comparison(report["figures"]), _alone(report["figures"]), _judged(report)))


def _machine(report: dict[str, Any]) -> RenderableType:
    machine = report["machine"]
    libraries = ", ".join(f"{name} {number}" for name, number in machine["libraries"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']} before; {machine['system']}, "
        f"Python {machine['python']}, Redis {machine['redis']}; {libraries}"
    )


def _comparison(figures: dict[str, Any]) -> Table:
    bare, ours, one = figures["bare"], figures["outrider"], figures["one_at_a_time_ms"]
    table = _table("One worker process each, side by side", "", "bare Celery", "outrider")
    sent = bare["submits_per_s"]["send_task"]
    table.add_row("submits per second, one after another", _n(sent), _n(ours["submits_per_s"]["sync"]))
    table.add_row("submits per second, 16 in flight", "", _n(ours["submits_per_s"]["async"]))
    for cut in ("p50", "p99"):
        table.add_row(f"one at a time, {cut}, ms", f"{one['bare'][cut]:.1f}", f"{one['outrider'][cut]:.1f}")
    table.add_row("tasks per second from a backlog", _n(bare["tasks_per_s"]), _n(ours["tasks_per_s"]))
    names = {
        "commands": "Redis commands per task, with those in scripts",
        "reads": "socket reads of Redis per task",
        "bytes_in": "bytes to Redis per task",
        "bytes_out": "bytes from Redis per task",
        "dataset": "bytes kept in Redis per task",
    }
    for key, name in names.items():
        table.add_row(name, _n(bare["redis_per_task"][key]), _n(ours["redis_per_task"][key]))
    return table


def _alone(figures: dict[str, Any]) -> Table:
    table = _table("outrider alone", "", "figure")
    sleepers = figures["sleepers"]
    table.add_row(f"{sleepers['count']:,} one-second agents in one process, s", f"{sleepers['wall_s']:.2f}")
    if sleepers["peak_rss_bytes"] is not None:
        table.add_row("its peak memory, MB", _n(sleepers["peak_rss_bytes"] / MB))
    for talk in figures["conversations"]:
        what = f"1 KB step after {talk['messages']:,} messages of {talk['message_bytes']:,} bytes"
        table.add_row(f"{what}, bytes to Redis", _n(talk["bytes_in_per_step"]))
        table.add_row(f"memory after {talk['steps']} such steps, times the conversation", f"{talk['memory_ratio']:.2f}")
    table.add_row("outrider --help, s", f"{figures['help_s']:.2f}")
    return table


def _judged(report: dict[str, Any]) -> Table:
    table = _table("Targets", "", "measured", "target", "")
    words = {True: "[green]reached[/green]", False: "[red]not reached[/red]", None: "not measured here"}
    for target in report["targets"]:
        bound = f"{'≥' if target['at_least'] else '≤'} {target['bound']:g}"
        value = "" if target["value"] is None else f"{target['value']:.2f}"
        table.add_row(target["name"], value, bound, words[target["reached"]])
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if 0 < i < 3 else "left", min_width=56 if i == 0 else 11)  # noqa: PLR2004
    return table


def _n(value: float) -> str:
    return f"{value:,.0f}"
