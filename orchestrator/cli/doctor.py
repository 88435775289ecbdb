"""`outrider doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...shared.text import counted
from .console import console, on_terminal, print_json, run, visible, working
from .endings import DONE, ENDED_BADLY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..doctor import Report

EPILOG = """\b
Examples:
  outrider doctor
  outrider doctor --json"""

COLOURS = {"error": "red", "warning": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor", short_help="Tell what is wrong, and what to do about it.", epilog=EPILOG)(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: {ok, findings, facts}.")] = False,
) -> int:
    """Find out what is wrong, and what to do. Looks at Redis, the broker, workers, agents and tasks.

    It changes nothing. Exit code 0: nothing is wrong; 1: something is wrong; 3: Redis does not answer.
    """
    from ...shared.settings import Settings
    from ..doctor import examine

    settings = Settings.load()
    with working("looking", quiet=as_json):
        report = run(examine(settings))
    if as_json:
        print_json(report.to_json())
    elif on_terminal():
        _print_table(report)
    else:
        for name, text in _facts(report.facts):
            print(f"{name}\t{visible(text)}")
        for finding in report.findings:
            print(f"{finding.level}\t{visible(finding.what)}\t{visible(finding.remedy)}")
        print(f"ok\t{_verdict(report)}" if not report.findings else f"wrong\t{_verdict(report)}")
    return ENDED_BADLY if report.findings else DONE


def _verdict(report: Report) -> str:
    count = len(report.findings)
    return counted(count, "finding") if count else "nothing is wrong"


def _facts(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    redis, broker, tasks = facts["redis"], facts["broker"], facts["tasks"]
    limit = f" of {redis['max_memory_bytes'] / 2**20:,.0f}" if redis["max_memory_bytes"] else ""
    if redis["version"] is None:
        yield "redis", redis["url"]
    else:
        kept = "append-only file" if redis["append_only_file"] else "no append-only file"
        yield "redis", f"{redis['url']}, version {redis['version']}, {kept}, {redis['eviction']}"
        yield "memory", f"{redis['used_memory_bytes'] / 2**20:,.0f}{limit} MiB"
    yield "ping", f"{redis['ping_ms']['p50']:g} ms, 99 of 100 within {redis['ping_ms']['p99']:g} ms"
    yield "broker", broker["url"] if broker["reachable"] else f"{broker['url']}, out of reach"
    yield "namespace", facts["namespace"]
    for worker in facts["workers"]:
        pool = f"{worker['concurrency']} {worker['pool']}" if worker["concurrency"] else "concurrency unknown"
        yield "worker", f"{worker['name']}, {pool}, queues {', '.join(worker['queues'])}"
    for queue in facts["queues"]:
        yield "queue", f"{queue['name']}, {counted(queue['bells'], 'bell')}, {counted(queue['workers'], 'worker')}"
    if facts["agents"]:
        yield (
            "agents",
            ", ".join(f"{one['name']} (broken)" if one["broken"] else one["name"] for one in facts["agents"]),
        )
    yield "tasks", ", ".join(f"{count} {status}" for status, count in tasks["by_status"].items() if count) or "none"
    for agent, count in tasks["wait_for_slots"].items():
        yield "slots", f"{counted(count, 'task')} of {agent} until another run of it has ended"
    if oldest := tasks["oldest_pending"]:
        yield "oldest", f"{oldest['task_id']} has been pending for {oldest['seconds']} s"


def _print_table(report: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _facts(report.facts):
        table.add_row(name, Text(visible(text)))
    for finding in report.findings:
        table.add_row(
            Text(finding.level.value, COLOURS[finding.level.value]),
            Text.assemble(visible(finding.what), ("\n  " + visible(finding.remedy), "dim")),
        )
    table.add_row(Text("wrong", "red") if report.findings else Text("ok", "green"), _verdict(report))
    console().print(table)
