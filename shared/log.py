"""Logs: one form for our lines and for those of Celery and of agents; a console on a terminal, else JSON lines.

Ids are bound once, with structlog's context variables: what an agent or a library logs within a run has them too. Our
own lines never hold descriptions, results or the texts of agents' errors. Passwords and keys in URLs are masked in
every line, whoever wrote it. The events are listed in docs/operations.md.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

    from .settings import Settings

#: In a URL: the password before the host, and what its query calls a password, key, token or secret.
_SECRETS = (
    (re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@]*:)[^\s/@]+@"), r"\1***@"),
    (re.compile(r"(?i)([?&][\w.-]*(?:password|key|token|secret)=)[^&\s\"'\\]+"), r"\1***"),
)

#: Celery's loggers for every single task: our own lines say the same, with the task's ids.
_PER_TASK = ("celery.worker.strategy", "celery.app.trace")


def mask(_logger: WrappedLogger | None, _method: str, line: Any) -> str:
    """Replace secrets in a rendered line, wherever in it they stand, by `***`."""
    for pattern, shown in _SECRETS:
        line = pattern.sub(shown, line)
    return str(line)


def _without_words(_logger: WrappedLogger | None, _method: str, line: EventDict) -> EventDict:
    """Reduce errors in our own lines to frames and type: their text may hold words of a task."""
    if not line.get("exc_info") or not str(line.get("logger")).startswith("outrider."):
        return line
    info = line.pop("exc_info")
    error = info if isinstance(info, BaseException) else sys.exc_info()[1]
    if error is not None:
        frames = "".join(traceback.format_tb(error.__traceback__))
        line["exception"] = f"Traceback (most recent call last):\n{frames}{type(error).__name__}"
    return line


def _by_celery(_logger: WrappedLogger | None, _method: str, line: EventDict) -> EventDict:
    """Drop what Celery hangs on its records for its own formatter: it repeats the message."""
    line.pop("data", None)
    return line


class _Handler(logging.StreamHandler[Any]):
    """Writes lines. A stream that is closed, by an agent's code perhaps, costs the lines and nothing else."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 logging's name
        with suppress(Exception):
            super().handleError(record)


def set_up_logging(settings: Settings, stream: Any = None) -> None:
    """Send all logs of this process to `stream` (default: stderr). A second call replaces the first."""
    out = stream or sys.stderr
    console = settings.log_format == "console" or (settings.log_format is None and out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=out.isatty() and not os.environ.get("NO_COLOR"))
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    handler = _Handler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _by_celery],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_words,
                structlog.processors.format_exc_info,
                renderer,
                mask,
            ],
        )
    )
    level = settings.log_level.upper()
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.captureWarnings(True)
    for name in _PER_TASK:
        logging.getLogger(name).setLevel(level if level == "DEBUG" else "WARNING")
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
