"""Flower, made safe to run without a login: for `outrider flower` and `celery -A outrider.worker.main flower`.

Without a login, Flower's API is either closed, or open to every page that a browser shows. Ours is open to programs of
this machine and to Flower's own pages alone, on loopback; elsewhere it does not start without authentication.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import flower.command
from flower.app import Flower
from flower.views import BaseHandler

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDRESS = "127.0.0.1"  #: where it listens, unless it is told otherwise
#: Flower's own columns, and the arguments: of a job these are agent, title and task id.
COLUMNS = "name,args,state,worker,received,runtime,uuid"
BAD_USE = 2  #: the exit code


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address. Names other than `localhost` are not looked up."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def is_foreign(method: str, host: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser sends this request for another page than Flower's own.

    Browsers send the page's site, older ones its origin; no page can forge either. A host name that is not this
    machine's is refused too: a stranger's name may point here. Opening Flower's page from a link elsewhere is allowed:
    only the person sees it, and it changes nothing.
    """
    if not is_loopback(urlsplit(f"//{host}").hostname or ""):
        return True
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if site is None:
        return origin is not None and urlsplit(origin).netloc != host
    opened = method == "GET" and headers.get("Sec-Fetch-Dest") == "document"
    return site not in {"same-origin", "none"} and not opened


class Refusal(BaseHandler):  # type: ignore[misc]  # Flower ships no types
    """Says why a request is not answered."""

    def set_default_headers(self) -> None:
        """Leave out those by which Flower would let any page read this."""

    def prepare(self) -> None:
        """Answer at once, whatever the method."""
        self.set_status(403)
        self.finish(
            "refused: without authentication this Flower answers its own pages and this machine's programs alone. "
            "Open it as http://127.0.0.1, or set FLOWER_BASIC_AUTH=user:password\n"
        )


class GuardedFlower(Flower):  # type: ignore[misc]  # Flower ships no types
    """Flower that asks for authentication, or is for this machine alone."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.open = not (self.options.basic_auth or self.options.auth)
        address = self.options.address
        if self.open and not self.options.unix_socket and not is_loopback(address):
            _leave(
                f"Flower on {address or 'all addresses'} would let everyone see and cancel tasks: set "
                "FLOWER_BASIC_AUTH=user:password (or --basic-auth), or FLOWER_AUTH with OAuth2; "
                f"or take --address {ADDRESS}"
            )
        if self.open:
            # The pages' own buttons use the API. Who may use it is decided in `find_handler`.
            os.environ.setdefault("FLOWER_UNAUTHENTICATED_API", "true")

    def find_handler(self, request: Any, **given: Any) -> Any:
        """Where Tornado asks who answers a request: the one place that every request passes."""
        if self.open and is_foreign(request.method, request.host, request.headers):
            return self.get_handler_delegate(request, Refusal)
        return super().find_handler(request, **given)

    def start_http_server(self) -> Any:
        """Listen; leave with one line where the port is taken."""
        try:
            return super().start_http_server()
        except OSError as error:
            _leave(
                f"Flower cannot listen on {self.options.address or 'all addresses'}, port {self.options.port}: "
                f"{error.strerror or error} (choose another with --port)"
            )


def _leave(text: str) -> NoReturn:
    print(f"outrider: {text}", file=sys.stderr)  # noqa: T201 logging goes where Flower's options say
    sys.exit(BAD_USE)


def guard_flower() -> None:
    """Make Flower's command start ours, with our defaults. Called before the command reads its options."""
    # The command takes the class from its module.
    flower.command.Flower = GuardedFlower
    os.environ.setdefault("FLOWER_ADDRESS", ADDRESS)
    os.environ.setdefault("FLOWER_TASKS_COLUMNS", COLUMNS)
