"""The worker: `celery -A outrider.worker.main worker`, on threads (the default) or prefork.

Importing this gives the Celery app, for Flower too; agents, LangGraph and Redis come when a worker starts.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

# LangGraph reads it at import: checkpoints revive only classes that the graphs of a worker name.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")

import click
from celery import concurrency, signals
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.thread import TaskPool as ThreadPool
from celery.platforms import SecurityWarning
from click.core import ParameterSource

from ..shared.broker import make_app
from ..shared.config import Config
from ..shared.errors import ConfigError
from ..shared.log import set_up_logging
from ..shared.queues import QUEUES
from ..shared.settings import Settings
from .checkup import warn_of_findings
from .failed_starts import Starts
from .remote_commands import replace_commands
from .shutdown import DrainLine, end_now, give_up, leave_by_signals
from .stop_consuming import then_drain
from .tasks import add_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .process import WorkerProcess

# Celery warns root that messages which are not JSON could do harm: only JSON is accepted here.
warnings.filterwarnings("ignore", category=SecurityWarning)

CONCURRENCY = 250  #: threads, unless `-c` says otherwise
CHILD_STARTS_SECONDS = 60.0  #: a prefork child imports LangGraph; Celery's 4 s are too short for several at once


@contextmanager
def _or_leave() -> Iterator[None]:
    """Leave with one line for a bad configuration, and with a traceback for what else fails.

    Celery goes on when a receiver of its signals raises an error; not when it exits.
    """
    try:
        yield
    except ConfigError as error:
        sys.exit(f"outrider: {error}")
    except Exception:  # noqa: BLE001 a worker that did not start must not take bells
        traceback.print_exc()
        sys.exit(1)


class Worker:
    """The state of this worker: what its signals share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.config: Config | None = None
        self.node = ""  #: its name among Celery's workers
        self.process: WorkerProcess | None = None
        self.drain_line: DrainLine | None = None
        self.starts: Starts | None = None

    def the_process(self) -> WorkerProcess:
        """The process that executes, once it was started."""
        if self.process is None:
            raise ConfigError("no worker runs in this process: start one with `outrider worker`")
        return self.process

    def start_process(self, size: int) -> WorkerProcess:
        """Start executing in this process."""
        from .process import WorkerProcess  # noqa: PLC0415 LangGraph, that only those who execute need

        if self.config is None:
            raise ConfigError("no configuration was read before the worker's process")
        self.process = WorkerProcess(self.settings, self.config, app, size, self.node)
        self.process.start()
        return self.process


def _load_settings() -> Settings:
    with _or_leave():
        return Settings.load()


worker = Worker(_load_settings())
app = make_app(worker.settings)
app.conf.worker_proc_alive_timeout = CHILD_STARTS_SECONDS
add_tasks(app, worker.the_process)
if "flower.command" in sys.modules:  # Celery's command line has loaded it, and may be about to run it
    from ..shared.flower_guard import guard_flower

    guard_flower()


def _logging(**_: Any) -> None:
    set_up_logging(worker.settings)


def _read_config(instance: Any, **_: Any) -> None:
    if not _given("hostname"):
        # Two workers of one host must differ: RabbitMQ shuts the second out, and monitors take them for one.
        instance.hostname = f"outrider-{os.getpid()}@{socket.gethostname()}"
    worker.node = instance.hostname
    # A log has one event in each line; Celery's banner is for people at a terminal.
    instance.quiet = instance.quiet or not sys.stdout.isatty()
    with _or_leave():
        worker.config = Config.load(worker.settings.config)
        names = dict.fromkeys((*QUEUES, *worker.config.queues()))
        # On Redis a bell is taken off the queue for good: noting each one down and off again costs an eighth of a short
        # run, and one that is lost on its way is rung again. Other brokers push what is not acknowledged without limit.
        options = {"no_ack": bool(app.conf.worker_disable_prefetch)}
        app.conf.task_queues = {name: {"exchange": name, "routing_key": name, **options} for name in names}
        replace_commands(app, worker.settings)


def _choose_pool(sender: Any, **_: Any) -> None:
    # What workers tell each other, at start and later, costs a second of waiting, and we use none of it.
    sender.options |= {"without_mingle": True, "without_gossip": True}
    with _or_leave():
        if not _given("pool"):
            sender.pool_cls = ThreadPool
        pool = concurrency.get_implementation(sender.pool_cls)
        if issubclass(pool, PreforkPool):
            from . import process  # noqa: F401, PLC0415 imported once for all children, which share its memory

            worker.drain_line = DrainLine()
            worker.starts = Starts(_most_children(sender))
        elif issubclass(pool, ThreadPool):
            if not _given("concurrency"):
                sender.concurrency = CONCURRENCY
            worker.start_process(sender.concurrency)
        else:
            raise ConfigError(
                f"pool {pool.__module__} is not supported: use -P threads, or -P prefork for CPU-bound agents"
            )


def _most_children(sender: Any) -> int:
    """How many children there may be at once: `-c`, which may be `auto`, or the larger one of `--autoscale`."""
    count = sender.concurrency if isinstance(sender.concurrency, int) else os.cpu_count() or 1
    autoscale = sender.options.get("autoscale") or ()
    return max([count, *map(int, autoscale.split(",") if isinstance(autoscale, str) else autoscale)])


def _given(option: str) -> bool:
    """Whether an option of Celery's command line was given, rather than left at its default."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(option) is not ParameterSource.DEFAULT


def _in_child(**_: Any) -> None:
    if worker.drain_line is None or worker.starts is None:
        return
    worker.starts.begun()
    if worker.starts.too_many:
        give_up(why="prefork children end before their agents are loaded, again and again: what they said is above")
    with _or_leave():
        process = worker.start_process(1)
        process.when_ready(worker.starts.worked)
        process.drain_at_end_of(worker.drain_line.in_child())


def _check(**_: Any) -> None:
    warn_of_findings(worker.settings)


def _told_to_stop(**_: Any) -> None:
    if worker.starts is not None and worker.starts.too_many:
        end_now()  # the child that told us to stop has said why
    leave_by_signals(worker.settings.grace_seconds)


def _drain() -> None:
    if worker.drain_line is not None:
        worker.drain_line.drain()
    if worker.process is not None:
        worker.process.drain()


def _stop(**_: Any) -> None:
    if worker.process is not None:
        worker.process.stop()
        worker.process = None


then_drain(app, _drain)
signals.setup_logging.connect(_logging)
signals.celeryd_init.connect(_read_config)
signals.worker_init.connect(_choose_pool)
signals.worker_process_init.connect(_in_child)
signals.worker_ready.connect(_check)
signals.worker_shutting_down.connect(_told_to_stop)
signals.worker_shutdown.connect(_stop)
signals.worker_process_shutdown.connect(_stop)
