"""The base of all kinds of shops: IDs, the routes of the API, and webhooks."""

import base64
import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
from aiohttp import web

from ingest.lab.shops.making import Traits
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_site import ShopSite
from ingest.lab.shops.shop_state import Event
from ingest.lab.shops.shop_views import ShopViews

Document = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.Response]]


class NoOrder(Exception):
    """The requested order does not exist."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A signed request to the receiver of webhooks.

    Attributes:
        body: the exact bytes that are signed.
        headers: with the signature.
    """

    body: bytes
    headers: dict[str, str]


class Kind(ABC):
    """The API of one kind of shop.

    Attributes:
        token: the shop's credential unless another one is chosen.
        client: `ID:SECRET` unless another one is chosen.
        token_lifetime: seconds that an access token lasts.
        first_id: ID of the order before the first one.
        traits: of its orders.
        retries: seconds after each failure of a webhook until it is sent again.
        most_failures: consecutive failures after which no more webhooks are sent, or None.
    """

    token: ClassVar[str] = "simulated-token"  # noqa: S105  a default for tests
    client: ClassVar[str] = "simulated-client:simulated-secret"
    token_lifetime: ClassVar[float] = 3600.0
    first_id: ClassVar[int] = 0
    traits: ClassVar[Traits] = Traits()
    retries: ClassVar[Sequence[float]] = ()
    most_failures: ClassVar[int | None] = None

    def __init__(self, site: ShopSite) -> None:
        self._site = site
        self._state = site.state
        self._views = ShopViews(site.state, lambda: site.behaviour, self.number, site.random)

    def order_id(self, number: int) -> str:
        """Return the ID of an order."""
        return str(self.first_id + number)

    def number(self, order_id: str) -> int | None:
        """Return the number of the order with this ID, or None for an ID of another form."""
        found = decimal_number(order_id)
        return None if found is None else found - self.first_id

    @abstractmethod
    def routes(self) -> Iterable[web.RouteDef]:
        """Return the routes of the shop's API."""

    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:  # noqa: ARG002  for kinds that send them
        """Return the webhook for an event, or None if the shop sends none."""
        return None

    def _guarded(self, handler: Handler, *limits: Any) -> Handler:
        """Return a handler of requests that have a credential and keep the limits. It may raise `NoOrder` and ValueError."""

        async def respond(request: web.Request) -> web.Response:
            if (refusal := self._refusal(request, *limits)) is not None:
                return refusal
            try:
                response = await handler(request)
            except NoOrder:
                response = self._missing()
            except ValueError as error:
                response = self._invalid(str(error))
            return self._stamped(response, *limits)

        return respond

    def _requested(self, request: web.Request) -> ShopOrder:
        """Return the order that a path names, and count the request.

        Raises:
            NoOrder: it does not exist.
        """
        return existing(self._views.fetch(self.number(request.match_info["id"])))

    def _refusal(self, request: web.Request, *limits: Any) -> web.Response | None:
        """Return the response to a request without a credential, or above the limits."""
        raise NotImplementedError

    def _missing(self) -> web.Response:
        """Return the response for an order that does not exist."""
        raise NotImplementedError

    def _invalid(self, problem: str) -> web.Response:  # noqa: ARG002  for kinds that name it
        """Return the response to a request with an invalid parameter."""
        return web.Response(status=400, text="Bad Request")

    def _stamped(self, response: web.Response, *limits: Any) -> web.Response:  # noqa: ARG002  for kinds with headers
        """Return a response with the headers about the limits."""
        return response

    def _unauthorized(self, response: web.Response) -> web.Response:
        """Count a request without a valid credential."""
        self._state.counts["unauthorized"] += 1
        return response


def existing(order: ShopOrder | None) -> ShopOrder:
    """Return an order.

    Raises:
        NoOrder: there is none.
    """
    if order is None:
        raise NoOrder
    return order


def json_response(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Build a response with a JSON document."""
    return web.Response(
        body=msgspec.json.encode(document), status=status, content_type="application/json", headers=headers
    )


def hmac_base64(secret: bytes, body: bytes) -> str:
    """Return the HMAC-SHA256 of a body in base64."""
    return base64.b64encode(hmac.digest(secret, body, hashlib.sha256)).decode()


def read_time(text: str | None) -> datetime | None:
    """Read a time in ISO 8601, which is UTC without a zone.

    Raises:
        ValueError: the text is no time.
    """
    if not text:
        return None
    moment = datetime.fromisoformat(text.replace(" ", "+", 1) if "T" in text else text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def decimal_number(text: str) -> int | None:
    """Return a text of ASCII digits as a number, or None for another text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def page_number(text: str | None, default: int, highest: int | None = None) -> int:
    """Read a positive number of a query.

    Raises:
        ValueError: it is not a number, or out of range.
    """
    if text is None:
        return default
    number = int(text)
    if number < 1 or (highest is not None and number > highest):
        raise ValueError(text)
    return number
