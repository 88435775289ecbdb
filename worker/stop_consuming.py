"""How a worker ceases to consume: told to stop, it takes no more bells, and rings for those that it did not begin.

Celery by itself would lose what its last request brings, and what no child of its pool has begun.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import structlog
from celery import bootsteps
from celery.worker import state

from ..shared.broker import BrokerUnreachable, bell_in, ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

#: How long a drain waits for that at most: a broker that hangs never answers, and the record needs no answer.
CEASE_SECONDS = 2.0

log = structlog.get_logger("outrider.worker")


def then_drain(app: Celery, drain: Callable[[], None]) -> None:
    """Let the workers of an app cease to consume when they are told to stop, and then call `drain`.

    To a second call `drain` does nothing.
    """

    class CeaseConsuming(bootsteps.StartStopStep):  # type: ignore[misc] # Celery has no types
        def close(self, worker: Any) -> None:
            late = threading.Timer(CEASE_SECONDS, drain)
            late.daemon = True
            late.start()
            try:
                _cease(worker.consumer)
                _ring_again(app)
            finally:
                late.cancel()
                late.join()
                drain()

    app.steps["worker"].add(CeaseConsuming)


def _cease(consumer: Any) -> None:
    """Take what is on its way, and no more."""
    if consumer.connection is None or consumer.task_consumer is None:
        return
    try:
        # On Redis this waits for the request that is open, a second at most; RabbitMQ gives others what nobody began.
        consumer.task_consumer.channel.close()
    except (*consumer.connection_errors, *consumer.channel_errors) as error:
        log.warning("worker.cannot_cease", error=type(error).__name__)


def _ring_again(app: Celery) -> None:
    """Ring for what was taken and not begun. Where it begins all the same, its bell is doubled, which does no harm."""
    for request in state.reserved_requests - state.active_requests:
        bell = bell_in(request.name, request)
        try:
            ring(app, bell)
        except BrokerUnreachable as error:
            log.warning("bell.not_rung", task_id=bell.task_id, run_id=bell.run_id, error=str(error))  # a sweeper will
