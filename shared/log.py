"""Logs: one form for our lines and for those of Celery and of agents; a console on a terminal, else JSON lines.

Ids are bound once, with structlog's context variables. Descriptions, results and the texts of agents' errors are never
logged; passwords in URLs are masked wherever they come from.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

    from .settings import Settings

_PASSWORD = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@]*:)[^\s/@]+@")

#: Lines of Celery for every single task: ours say the same, with the ids of the task.
_PER_TASK = ("celery.worker.strategy", "celery.app.trace")


def mask_passwords(_logger: WrappedLogger | None, _method: str, line: EventDict) -> EventDict:
    """Replace the passwords of URLs in every text of a line by `***`."""
    for key, value in line.items():
        if isinstance(value, str) and "://" in value:
            line[key] = _PASSWORD.sub(r"\1***@", value)
    return line


def _by_celery(_logger: WrappedLogger | None, _method: str, line: EventDict) -> EventDict:
    """Drop what Celery hangs on its records for its own formatter: it repeats the message."""
    line.pop("data", None)
    return line


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
        structlog.dev.ConsoleRenderer(colors=out.isatty())
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _by_celery],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                mask_passwords,
                renderer,
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
