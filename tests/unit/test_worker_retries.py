"""Which errors are worth another attempt, told without importing a provider, and what a provider asks to wait."""

import asyncio

import anthropic
import google.genai.errors
import httpx
import httpx2
import openai
import pytest
import requests
from langchain_core.exceptions import ContextOverflowError, ModelRateLimitError
from langchain_google_genai.chat_models import GoogleRateLimitError
from langgraph.errors import GraphRecursionError

from outrider.shared.errors import BadInput
from outrider.worker.retries import LONGEST_RETRY_AFTER, is_retryable, least_pause
from outrider.worker.transient import retry_after

REQUEST = httpx2.Request("POST", "http://localhost")


def answer(status, **headers):
    return httpx2.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def of_openai(status, kind=openai.APIStatusError, body=None, message="no", **headers):
    response = answer(status, **headers)
    response.request = REQUEST
    return kind(message, response=response, body=body)


def of_anthropic(status, body=None, kind=anthropic.APIStatusError):
    response = answer(status)
    response.request = REQUEST
    return kind("no", response=response, body=body)


def of_httpx(status, **headers):
    request = httpx.Request("GET", "http://localhost")
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, headers=headers))


def of_requests(status):
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("no", response=response)


def foreign(module, name, base=Exception, **fields):
    """An error of a package that is not here."""
    kind = type(name, (base,), {"__module__": module})
    error = kind("no")
    vars(error).update(fields)
    return error


def of_aws(status, code):
    told = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}
    return foreign("botocore.exceptions", "ClientError", response=told)


class OwnError(Exception):
    status_code = 503


class Shown(httpx.ReadTimeout):
    """An agent's own one below a provider's."""


PASSING = {
    "openai's rate limit": of_openai(429, openai.RateLimitError),
    "openai's server": of_openai(500, openai.InternalServerError),
    "openai's status alone": of_openai(503),
    "openai's connection": openai.APIConnectionError(request=REQUEST),
    "openai's timeout": openai.APITimeoutError(REQUEST),
    "openai in a stream": openai.APIError("no", REQUEST, body={"type": "server_error", "code": None}),
    "anthropic's overload": of_anthropic(529),
    "anthropic in a stream": of_anthropic(200, {"type": "error", "error": {"type": "overloaded_error"}}),
    "google's server": google.genai.errors.ServerError(503, {"error": {"message": "no"}}),
    "google's rate limit": google.genai.errors.ClientError(429, {"error": {"message": "no"}}),
    "google's rate limit as LangChain has it": GoogleRateLimitError("no"),
    "google's call": foreign("google.api_core.exceptions", "ResourceExhausted", code=429),
    "LangChain's own": ModelRateLimitError("no"),
    "httpx's timeout": httpx.ReadTimeout("no"),
    "httpx's connection": httpx.ConnectError("no"),
    "httpx2's": httpx2.RemoteProtocolError("no"),
    "httpx's status": of_httpx(502),
    "httpcore's": foreign("httpcore", "ReadError", foreign("httpcore", "NetworkError").__class__),
    "requests' timeout": requests.ReadTimeout("no"),
    "requests' connection": requests.ConnectionError("no"),
    "requests' status": of_requests(500),
    "AWS throttles": of_aws(400, "ThrottlingException"),
    "AWS is away": of_aws(503, "ServiceUnavailable"),
    "AWS's connection": foreign(
        "botocore.exceptions", "EndpointConnectionError", foreign("botocore.exceptions", "ConnectionError").__class__
    ),
    "below a provider's": Shown("no"),
}
LASTING = {
    "a bad request": of_openai(400, openai.BadRequestError),
    "a key that is wrong": of_openai(401, openai.AuthenticationError),
    "anthropic's bad request": of_anthropic(400),
    "google's bad request": google.genai.errors.ClientError(400, {"error": {"message": "no"}}),
    "a page that is not there": of_httpx(404),
    "what httpx cannot send": httpx.LocalProtocolError("no"),
    "AWS refuses": of_aws(400, "ValidationException"),
    "an overflow": ContextOverflowError("no"),
    "an overflow as a fault of the server": of_openai(500, body={"code": "x"}, message="exceeds the context window"),
    "an overflow as a rate limit": of_openai(429, openai.RateLimitError, message="context_length_exceeded"),
    "a loop": GraphRecursionError("no"),
    "an agent's timeout": TimeoutError("no"),
    "an agent's connection": ConnectionError("no"),
    "an agent's own": OwnError("no"),
    "ours": BadInput("no"),
}


@pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
def test_what_passes_by_itself_is_worth_another_attempt(error):
    assert is_retryable(error)


@pytest.mark.parametrize("error", LASTING.values(), ids=LASTING)
def test_others_are_not(error):
    assert not is_retryable(error)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("OwnError", OwnError()),
        ("TimeoutError", TimeoutError()),
        ("builtins.OSError", ConnectionResetError()),
        ("asyncio.TimeoutError", TimeoutError()),
        ("requests.RequestException", of_requests(404)),
        ("httpx.HTTPError", of_httpx(404)),
        (f"{__name__}.OwnError", OwnError()),
        ("CancelledError", asyncio.CancelledError()),
    ],
)
def test_what_an_agent_names_counts_with_all_below_it(name, error):
    assert not is_retryable(error)
    assert is_retryable(error, [name])


@pytest.mark.parametrize("name", ["Own", "nowhere.OwnError", "httpx.OwnError", "sys.path", ""])
def test_other_names_do_not_count(name):
    assert not is_retryable(OwnError(), [name])


@pytest.mark.parametrize("error", [GraphRecursionError(), ContextOverflowError(), BadInput("no")])
def test_what_ends_the_same_way_each_time_is_not_tried_again_though_it_is_named(error):
    assert not is_retryable(error, ["Exception", type(error).__name__])


DATE = "Mon, 02 Mar 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "7"}, 7),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": "-3"}, 0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "Mon, 02 Mar 2026 12:00:30 GMT", "date": DATE}, 30),
        ({"retry_after": "Mon, 02 Mar 2026 11:00:00 GMT", "date": DATE}, 0),
        ({"retry_after": "Mon, 02 Mar 2026 12:00:30 GMT"}, 0),  # by our clock it is long past
    ],
)
def test_retry_after_in_seconds_or_as_a_date(headers, seconds):
    assert retry_after(of_httpx(429, **headers)) == seconds
    assert retry_after(of_openai(429, **headers)) == seconds


def test_retry_after_of_what_an_error_was_raised_from():
    wrapped = GoogleRateLimitError("no")
    wrapped.__cause__ = of_httpx(429, retry_after="9")
    assert retry_after(wrapped) == 9
    wrapped.__cause__ = wrapped
    assert retry_after(wrapped) is None


def test_what_is_asked_for_is_bounded_and_spread():
    assert least_pause(of_httpx(429)) == 0
    assert 10 <= least_pause(of_httpx(429, retry_after="10")) <= 11
    assert LONGEST_RETRY_AFTER <= least_pause(of_httpx(429, retry_after="86400")) <= 1.1 * LONGEST_RETRY_AFTER
