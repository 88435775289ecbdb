"""The queue: the Celery app and `ring`, the only thing that is ever sent. A bell may be lost, late or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from celery import Celery
from kombu.exceptions import OperationalError

from .errors import OutriderError
from .queues import QUEUES, SUBAGENTS
from .settings import mask_url
from .statuses import RunKind

if TYPE_CHECKING:
    from .records import Bell
    from .settings import Settings

__all__ = ["QUEUES", "TASK_NAMES", "BrokerUnreachable", "make_app", "ring"]

#: The Celery task of each kind of run.
TASK_NAMES = {RunKind.AGENT: "outrider.run", RunKind.GRADE: "outrider.grade"}


class BrokerUnreachable(OutriderError):
    """The broker does not take a bell. The record stands, and a worker's sweeper rings later."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = mask_url(url)
        super().__init__(f"cannot reach the broker at {self.url}: {reason.replace(url, self.url)}")


def make_app(settings: Settings) -> Celery:
    """The Celery app of one namespace. It connects at the first bell."""
    app = Celery("outrider", broker=settings.broker, set_as_current=False)
    app.conf.update(
        # Celery would let CELERY_BROKER_URL go before what our settings say.
        broker_read_url=settings.broker,
        broker_write_url=settings.broker,
        task_ignore_result=True,
        task_acks_late=False,  # the record decides who works; a bell has done its work when it was heard
        task_default_queue=SUBAGENTS,
        task_create_missing_queues=True,
        task_serializer="json",
        accept_content=["json"],
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=5,
        broker_transport_options=_transport(settings),
    )
    if _on_redis(settings):
        # A busy worker would else hoard as many bells as it has threads, while others idle.
        app.conf.worker_disable_prefetch = True
    return app


def _on_redis(settings: Settings) -> bool:
    return urlsplit(settings.broker).scheme in {"redis", "rediss", "sentinel", "socket"}


def _transport(settings: Settings) -> dict[str, object]:
    """Options of the transport; on Redis a prefix, so that two namespaces never hear each other's bells."""
    if not _on_redis(settings):
        return {}
    return {
        "global_keyprefix": f"{{{settings.namespace}}}:",
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 30,
    }


def ring(app: Celery, bell: Bell) -> None:
    """Send a bell. Blocks, so never on an event loop; safe from many threads. `BrokerUnreachable` where it cannot."""
    try:
        with app.producer_pool.acquire(block=True) as producer:
            app.send_task(
                TASK_NAMES[bell.kind],
                args=(bell.task_id, bell.run_id),
                task_id=bell.run_id,
                queue=bell.queue,
                producer=producer,
                ignore_result=True,
                retry=False,
                argsrepr=bell.label,  # what Flower shows; ids, the agent's name and the title alone
                kwargsrepr="{}",
            )
    except (OperationalError, OSError) as error:
        raise BrokerUnreachable(app.conf.broker_write_url, str(error)) from None
