"""The queue: the Celery app, and `ring`, which sends bells. A bell may be lost, late or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import celery.events.dispatcher  # noqa: F401 imported here: two threads that ring at once would deadlock importing it
from celery import Celery
from kombu.exceptions import ChannelError, ConnectionError, OperationalError  # noqa: A004 not that of Python

from .bells import Bell
from .broker_url import for_kombu
from .errors import OutriderError
from .queues import QUEUES, SUBAGENTS
from .settings import mask_url
from .statuses import RunKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kombu.messaging import Producer

    from .settings import Settings

__all__ = ["BROKER_ERRORS", "QUEUES", "TASK_NAMES", "BrokerUnreachable", "bell_in", "make_app", "ring", "tell_monitors"]

#: The Celery task of each kind of run.
TASK_NAMES = {RunKind.AGENT: "outrider.run", RunKind.GRADE: "outrider.grade"}
KINDS = {name: kind for kind, name in TASK_NAMES.items()}

#: What a broker that is away raises. On RabbitMQ some of it is no `OSError`, and is not wrapped by kombu.
BROKER_ERRORS = (OperationalError, ConnectionError, ChannelError, OSError)

#: A pooled connection notices only by failing that its broker was restarted: then one more try, at once.
ONE_MORE: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}

#: How long a broker may take to connect or to answer. One that hangs would else hold whoever rings, sweepers too.
ANSWER_SECONDS = 5


class BrokerUnreachable(OutriderError):
    """The broker did not take a bell. The record was written all the same, and a sweeper will ring."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = mask_url(url)
        super().__init__(f"cannot reach the broker at {self.url}: {reason.replace(url, self.url)}")


def make_app(settings: Settings) -> Celery:
    """The Celery app of one namespace. It connects at the first bell."""
    broker = for_kombu(settings.broker)
    app = Celery("outrider", broker=broker.url, set_as_current=False)
    app.conf.update(
        # Celery would let CELERY_BROKER_URL go before what our settings say.
        broker_read_url=broker.url,
        broker_write_url=broker.url,
        broker_use_ssl=broker.ssl,
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
        broker_connection_max_retries=None,  # after Celery's 100, within an hour, a worker would exit
        broker_connection_timeout=ANSWER_SECONDS,
        broker_transport_options=_on_redis(settings.namespace) if broker.on_redis else {},
    )
    if broker.on_redis:
        # A busy worker would else hoard as many bells as it has threads, while others idle.
        app.conf.worker_disable_prefetch = True
        # A primary that becomes a replica answers so to whoever waits for a bell: a worker would exit at each failover.
        app.conf.broker_channel_error_retry = True
    return app


def _on_redis(namespace: str) -> dict[str, object]:
    """Options of the transport. The prefix keeps bells, events and commands of namespaces apart."""
    return {
        "global_keyprefix": f"{{{namespace}}}:",
        "socket_connect_timeout": ANSWER_SECONDS,
        "socket_timeout": ANSWER_SECONDS,  # a worker's request for a bell stays open for one second
        "socket_keepalive": True,
        "health_check_interval": 30,
    }


def ring(app: Celery, bell: Bell) -> None:
    """Send a bell. Blocks, so never on an event loop; safe from many threads. `BrokerUnreachable` where it cannot."""

    def send(producer: Producer) -> None:
        app.send_task(
            TASK_NAMES[bell.kind],
            args=(bell.task_id, bell.run_id),
            task_id=bell.run_id,
            queue=bell.queue,
            producer=producer,
            ignore_result=True,
            retry=True,
            retry_policy=ONE_MORE,
            argsrepr=bell.label,  # what Flower shows; ids, the agent's name and the title alone
            kwargsrepr="{}",
        )

    _with_producer(app, send)


def bell_in(name: str, request: Any) -> Bell:
    """The bell that a Celery task of this name is, from its request: to ring again without asking the record."""
    task_id, run_id = request.args
    queue = request.delivery_info["routing_key"]
    return Bell(task_id=task_id, run_id=run_id, kind=KINDS[name], queue=queue, label=request.argsrepr)


def tell_monitors(app: Celery, event: str, run_id: str, *, node: str, **facts: object) -> None:
    """Send monitors an event about a run, such as `task-retried`, in the name of a worker. Nothing else reads it.

    Blocks and raises as `ring` does.
    """

    def send(producer: Producer) -> None:
        with app.events.Dispatcher(
            producer.connection, hostname=node, channel=producer.channel, buffer_while_offline=False
        ) as dispatcher:
            dispatcher.send(event, uuid=run_id, **facts)

    _with_producer(app, send)


def _with_producer(app: Celery, send: Callable[[Producer], None]) -> None:
    """Send with a producer of the pool. `BrokerUnreachable` where that fails."""
    try:
        with app.producer_pool.acquire(block=True) as producer:
            try:
                send(producer)
            except AttributeError:
                # So kombu meets a channel that was closed meanwhile, as happens where its broker dies.
                producer.connection.collect()
                producer.revive(producer.connection.default_channel)
                send(producer)
    except BROKER_ERRORS as error:
        raise BrokerUnreachable(app.conf.broker_write_url, str(error)) from None
