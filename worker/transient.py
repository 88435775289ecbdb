"""Which errors pass by themselves: those of model providers that are busy, slow or away.

They are known by the names and modules of their types and by status codes: no provider's package is imported.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SDK = frozenset({"RateLimitError", "APIConnectionError", "InternalServerError"})
_HTTP = frozenset({"TimeoutException", "NetworkError", "RemoteProtocolError"})
#: By the top-level modules of packages that call providers: types that pass by themselves, with all that is below them.
PROVIDERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("openai", "anthropic", "groq", "mistralai", "cohere", "ollama"), _SDK),
    **dict.fromkeys(("httpx", "httpx2", "httpcore", "httpcore2"), _HTTP),
    "requests": frozenset({"Timeout", "ConnectionError", "ChunkedEncodingError"}),
    "urllib3": frozenset({"TimeoutError", "ProtocolError"}),
    "aiohttp": frozenset({"ClientConnectionError", "ClientPayloadError"}),
    "botocore": frozenset({"ConnectionError", "HTTPClientError"}),
    "google": frozenset({"TransportError", "RetryError"}),
    "langchain_core": frozenset({"ModelRateLimitError", "ModelAPIError", "ModelConnectionError", "ModelTimeoutError"}),
}
INTEGRATIONS = "langchain_"  #: how the names of LangChain's packages for providers begin
STATUSES = frozenset({408, 429})  #: statuses that pass by themselves, besides all from 500 on
#: Codes in the body of an error. They tell also where it came in the middle of a stream that had begun with status 200.
CODES = frozenset({"rate_limit_error", "overloaded_error", "api_error", "server_error", "timeout_error"})
THROTTLED = ("Throttl", "TooManyRequests")  #: in the codes of AWS, whose status may be 400
OVERFLOW_TYPES = frozenset({"ContextOverflowError", "ContextWindowExceededError"})
OVERFLOW_WORDS = ("context_length_exceeded", "context window", "maximum context length", "prompt is too long")
LONGEST_CHAIN = 5  #: causes of an error that are looked at


def is_transient(error: BaseException) -> bool:
    """Whether a provider's error passes by itself: a rate limit, a timeout, a connection, a fault of its server."""
    of_provider = False
    for kind in type(error).__mro__:
        module = kind.__module__.partition(".")[0]
        if kind.__name__ in PROVIDERS.get(module, ()):
            return True
        of_provider = of_provider or module in PROVIDERS or module.startswith(INTEGRATIONS)
    if not of_provider:
        return False
    code = _aws_code(error)
    return _is_passing(_status(error)) or not CODES.isdisjoint(_said(error)) or any(word in code for word in THROTTLED)


def is_overflow(error: BaseException) -> bool:
    """Whether the conversation was too long for the model: the same request never passes."""
    return any(
        any(kind.__name__ in OVERFLOW_TYPES for kind in type(cause).__mro__)
        or any(word in _text(cause) for word in OVERFLOW_WORDS)
        for cause in _chain(error)
    )


def retry_after(error: BaseException) -> float | None:
    """Seconds that the provider asks to wait, 0 or more; `None` where it does not ask."""
    for cause in _chain(error):
        headers = _headers(cause)
        value = headers.get("retry-after")
        if value is not None:
            return _seconds(str(value), str(headers.get("date", "")))
    return None


def _seconds(value: str, date: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        try:
            # Against the clock that made it: ours may differ by minutes.
            now = parsedate_to_datetime(date).timestamp() if date else time.time()
            seconds = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds < float("inf") else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from."""

    def walk(cause: BaseException | None) -> Iterator[BaseException]:
        while cause is not None:
            yield cause
            cause = cause.__cause__

    return islice(walk(error), LONGEST_CHAIN)


def _is_passing(status: int | None) -> bool:
    return status is not None and (status in STATUSES or 500 <= status < 600)  # noqa: PLR2004 the 5xx of HTTP


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore's
        found = [_within(response, "ResponseMetadata").get("HTTPStatusCode")]
    else:
        names = ("status_code", "code", "status")
        found = [getattr(holder, name, None) for holder in (error, response) for name in names]
    return next((int(value) for value in found if isinstance(value, int) and not isinstance(value, bool)), None)


def _said(error: BaseException) -> set[str]:
    body = getattr(error, "body", None)
    told = body if isinstance(body, Mapping) else {}
    found = (told.get("type"), told.get("code"), _within(told, "error").get("type"), getattr(error, "code", None))
    return {value for value in found if isinstance(value, str)}


def _aws_code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    return str(_within(response, "Error").get("Code", "")) if isinstance(response, Mapping) else ""


def _headers(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        headers = _within(response, "ResponseMetadata").get("HTTPHeaders")
    else:
        headers = getattr(response, "headers", None) or getattr(error, "headers", None)
    return {str(name).lower(): value for name, value in headers.items()} if isinstance(headers, Mapping) else {}


def _within(holder: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
    inner = holder.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 an agent's exception may fail at being shown
        return ""
