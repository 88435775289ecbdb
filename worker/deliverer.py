"""The deliverer sends due deliveries to webhooks. Any number of processes deliver; each attempt belongs to one."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import structlog

from ..shared.records import DeliveryStatus
from ..shared.store_deliveries import PAGE
from ..shared.webhooks import Forbidden, check_addresses, key_of, port_of, resolve, signed
from .rounds import Rounds

if TYPE_CHECKING:
    from ..shared.settings import Settings
    from ..shared.store import Store
    from ..shared.store_deliveries import Attempt

SECONDS = 10.0  #: that one attempt may take
LEASE_MS = 15_000  #: how long others leave it alone
AT_ONCE = 20  #: deliveries that one process sends side by side

log = structlog.get_logger("outrider.webhooks")


class Deliverer:
    """Delivers in a process's loop. Names are resolved on threads of its own: agents may keep the others busy."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._key = key_of(settings.webhook_secret.get_secret_value()) if settings.webhook_secret else None
        self._names = ThreadPoolExecutor(2, thread_name_prefix="outrider-names")
        self._places = asyncio.Semaphore(AT_ONCE)
        self._rounds = Rounds(settings.sweep_seconds, lambda error: log.warning("webhooks.failing", error=error))

    def look(self) -> None:
        """Look at once: a task has just ended."""
        self._rounds.look()

    async def run(self) -> None:
        """Deliver for ever. Redis and receivers may go away meanwhile. Without a secret it delivers nothing."""
        if self._key is None:
            return
        # Receivers are called by the address that was checked: no proxy of the environment may resolve the name anew.
        tls = await asyncio.get_running_loop().run_in_executor(self._names, httpx.create_ssl_context)
        async with httpx.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=SECONDS) as http:
            await self._rounds.run(lambda: self._deliver(http))

    async def _deliver(self, http: httpx.AsyncClient) -> bool:
        """Deliver a page of what is due; whether there may be more."""
        due = await self._store.due_deliveries()
        tried = await asyncio.gather(*(self._try(http, *one) for one in due))
        return len(due) == PAGE and any(tried)

    async def _try(self, http: httpx.AsyncClient, task_id: str, run_id: str) -> bool:
        async with self._places:
            attempt = await self._store.take_delivery(task_id, run_id, lease_ms=LEASE_MS)
            if attempt is None:
                return False
            try:
                async with asyncio.timeout(SECONDS):
                    why = await self._send(http, attempt)
            except TimeoutError:
                why = f"no answer within {SECONDS:g} s"
            except UnicodeError:
                why = "its host is no name"
            except Exception as error:  # noqa: BLE001 whatever it is, this attempt failed
                why = str(error) if isinstance(error, Forbidden) else type(error).__name__
        if not why:
            await self._store.delivered(attempt)
            return True
        match await self._store.not_delivered(attempt, why):
            case DeliveryStatus.PENDING:
                log.warning("webhook.not_delivered", task_id=task_id, run_id=run_id, attempt=attempt.number, error=why)
            case DeliveryStatus.FAILED:
                log.error("webhook.given_up", task_id=task_id, run_id=run_id, attempt=attempt.number, error=why)
        return True

    async def _send(self, http: httpx.AsyncClient, attempt: Attempt) -> str:
        """Send it; why the receiver did not take it, empty where it did."""
        parts = urlsplit(attempt.url)
        host, port = parts.hostname or "", port_of(parts)
        addresses = await asyncio.get_running_loop().run_in_executor(self._names, resolve, host, port)
        if not self._settings.webhook_allow_private:
            check_addresses(addresses)
        # What was checked is what is called: the name might have another address a moment later.
        url = httpx.URL(attempt.url).copy_with(host=addresses[(attempt.number - 1) % len(addresses)])
        named = f"[{host}]" if ":" in host else host
        headers = signed(self._key or b"", attempt.delivery_id, int(time.time()), attempt.body)
        headers |= {"host": named if parts.port is None else f"{named}:{port}", "content-type": "application/json"}
        async with http.stream(
            "POST", url, content=attempt.body, headers=headers, extensions={"sni_hostname": host}
        ) as response:
            return "" if response.is_success else f"HTTP {response.status_code}"
