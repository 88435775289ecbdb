"""The check of a webhook's URL, before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..shared.errors import BadInput
from ..shared.ids import shorten
from ..shared.webhooks import Forbidden, check_addresses, check_url, port_of, resolve

if TYPE_CHECKING:
    from ..shared.settings import Settings


def check_webhook(url: Any, settings: Settings) -> None:
    """Raise `BadInput` where this URL may not be told of a task. Blocks, since the host is resolved.

    A host that cannot be resolved here is left to the workers, which resolve it anew for each attempt.
    """
    check_url(url)
    if settings.webhook_secret is None:
        raise BadInput(
            "webhook: OUTRIDER_WEBHOOK_SECRET is not set, with which deliveries are signed: "
            "set it here and for the workers, to the same text"
        )
    if settings.webhook_allow_private:
        return
    parts = urlsplit(url)
    try:
        check_addresses(resolve(parts.hostname or "", port_of(parts)))
    except Forbidden as forbidden:
        allow = "OUTRIDER_WEBHOOK_ALLOW_PRIVATE=true allows it"
        raise BadInput(f"webhook {shorten(repr(url))}: {forbidden} ({allow})") from None
    except OSError:
        return
