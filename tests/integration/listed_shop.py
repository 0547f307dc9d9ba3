"""A shop with a list of orders, whose orders change, appear late and follow the shop's clock."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from integration.scene import document
from scripted_http import Received, http, scripted_server

_ZERO = timedelta()


@dataclass(slots=True)
class ListedShop:
    """The shop.

    Attributes:
        ahead: how far its clock is ahead of ours.
        orders: time of the last change by order ID.
        fetches: requests for each order.
        lists: requests for pages of the list, by their query.
        fails: statuses of the next requests for pages. 0 for a page.
        size: elements on a page.
        has_versions: whether documents contain the time of the last change.
        is_empty: whether the list is empty, against the truth.
    """

    url: str = ""
    ahead: timedelta = _ZERO
    orders: dict[str, datetime] = field(default_factory=dict)
    fetches: Counter[str] = field(default_factory=Counter)
    lists: list[dict[str, str]] = field(default_factory=list)
    fails: list[int] = field(default_factory=list)
    size: int = 10
    has_versions: bool = True
    is_empty: bool = False

    def now(self) -> datetime:
        """Its clock, in whole seconds as in most shops."""
        return (datetime.now(UTC) + self.ahead).replace(microsecond=0)

    def change(self, *order_ids: str, ago: float = 0.0) -> None:
        """Change or add orders, which become visible now."""
        for order_id in order_ids:
            self.orders[order_id] = self.now() - timedelta(seconds=ago)

    def settings(self, **described: Any) -> dict[str, Any]:
        """Settings of a worker for this shop, which polls every second."""
        listed = {
            "url": f"{self.url}/orders?since={{since}}&page={{cursor}}",
            "next": "page",
            "size": self.size,
            "ascending": True,
            "overlap": "10s",
        }
        return {
            "upstream_url": f"{self.url}/orders/{{order_id}}",
            "order_list": json.dumps(listed | described),
            "poll": 1.0,
        }

    def respond(self, received: Received) -> bytes:
        """Respond to one request."""
        parts = urlsplit(received.line.split()[1])
        date = format_datetime(self.now(), usegmt=True)
        if parts.path != "/orders":
            order_id = unquote(parts.path.rpartition("/")[2])
            self.fetches[order_id] += 1
            return http(200, self.document(order_id), date=date)
        values = dict(parse_qsl(parts.query))
        self.lists.append(values)
        if self.fails and (status := self.fails.pop(0)):
            return http(status, b"{}", date=date)
        since, page = datetime.fromisoformat(values["since"]), int(values["page"])
        found = sorted((at, order_id) for order_id, at in self.orders.items() if at >= since)
        shown = [] if self.is_empty else found[(page - 1) * self.size : page * self.size]
        elements = [json.loads(self.document(order_id)) | {"updated_at": at.isoformat()} for at, order_id in shown]
        return http(200, json.dumps(elements).encode(), date=date)

    def document(self, order_id: str) -> bytes:
        """The document of an order."""
        at = self.orders[order_id].isoformat()
        return document(order_id, status=at, updated_at=at if self.has_versions else None)


@asynccontextmanager
async def listed_shop(shop: ListedShop | None = None) -> AsyncIterator[ListedShop]:
    """Serve a shop."""
    shop = shop or ListedShop()
    async with scripted_server() as server:
        shop.url = server.url
        server.answer(shop.respond)
        yield shop
