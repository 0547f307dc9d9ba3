"""The base of all kinds of shops: IDs, the routes of the API, and webhooks."""

import base64
import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Iterable
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
        traits: of its orders.
    """

    token: ClassVar[str] = "simulated-token"  # noqa: S105  a default for tests
    client: ClassVar[str] = "simulated-client:simulated-secret"
    token_lifetime: ClassVar[float] = 3600.0
    traits: ClassVar[Traits] = Traits()

    def __init__(self, site: ShopSite) -> None:
        self._site = site
        self._state = site.state
        self._views = ShopViews(site.state, lambda: site.behaviour, self.number, site.random)

    @abstractmethod
    def order_id(self, number: int) -> str:
        """Return the ID of an order."""

    @abstractmethod
    def number(self, order_id: str) -> int | None:
        """Return the number of the order with this ID, or None for an ID of another form."""

    @abstractmethod
    def routes(self) -> Iterable[web.RouteDef]:
        """Return the routes of the shop's API."""

    @abstractmethod
    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:
        """Return the webhook for an event, or None if the shop sends none."""


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
