"""Small shops whose lists mislead a reader: pages that are cut, capped, repeated or broken, and times that do not fit their place.

Each is written from the behavior of a shop that its docstring names, and answers requests of `scripted_http`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from integration.scene import document
from scripted_http import Received, http

START = datetime(2026, 10, 1, tzinfo=UTC)
SINCE = "2026-09-30"
Times = dict[str, datetime]


def numbered(count: int, every: timedelta = timedelta(minutes=1)) -> Times:
    """Orders by their ID, with the times of their last changes."""
    return {str(number): START + number * every for number in range(1, count + 1)}


def query(received: Received) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(received.line.split()[1]).query, keep_blank_values=True))


@dataclass(slots=True)
class MisleadingShop:
    """A list by page number, sorted by the time of the last change, whose index may be behind its documents.

    Attributes:
        orders: by their place in the index.
        shown: times of the documents that differ from the place. WooCommerce selects the IDs of a page first, and loads the orders
            afterwards, so that an order that changes in between shows its new time at its old place.
        left_out: orders that are left out of pages, after the limit. WooCommerce does so with orders that the key may not read.
        broken: orders that break each page that contains them. See magento2#7518.
        most: elements of a page, however many are requested.
        write: how times of elements are written.
        says: headers or members of the body that show the end, from the page, the size and the number of orders.
        on_page: called after each page.
    """

    url: str = ""
    orders: Times = field(default_factory=dict)
    shown: Times = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    most: int = 1_000
    write: Callable[[datetime], Any] = datetime.isoformat
    read: Callable[[str], datetime] = datetime.fromisoformat
    says: Callable[[int, int, int], dict[str, str]] = lambda _page, _size, _count: {}
    empty_status: int = 200
    time_name: str = "updated_at"
    on_page: Callable[[int], None] = lambda _: None
    pages: list[dict[str, str]] = field(default_factory=list)

    def listed(self, since: datetime) -> list[str]:
        """The IDs since a time, by their place."""
        return sorted((name for name, at in self.orders.items() if at >= since), key=lambda name: self.orders[name])

    def respond(self, received: Received) -> bytes:
        """Respond to one request."""
        date = format_datetime(datetime.now(UTC), usegmt=True)
        path = urlsplit(received.line.split()[1]).path
        if path.rpartition("/")[2] not in ("orders", ""):
            order_id = unquote(path.rpartition("/")[2])
            at = self.shown.get(order_id, self.orders[order_id]).isoformat()
            return http(200, document(order_id, status=at, updated_at=at), date=date)
        values = query(received)
        self.pages.append(values)
        page, size = int(values.get("page", "1")), min(int(values.get("size", "100")), self.most)
        found = self.listed(self.read(values["since"]))
        place = found[(page - 1) * size : page * size]
        if self.broken.intersection(place):
            return http(500, b'{"message":"Internal Error. Details are available in Magento log file."}', date=date)
        elements = [
            {"id": name, self.time_name: self.write(self.shown.get(name, self.orders[name]))}
            for name in place
            if name not in self.left_out
        ]
        self.on_page(page)
        if not place and self.empty_status == 204:
            return http(204, date=date)
        return http(200, json.dumps(elements).encode(), date=date, **self.says(page, size, len(found)))

    def described(self, **keys: Any) -> str:
        """The description of the list in the configuration."""
        described = {
            "url": f"{self.url}/orders?since={{since}}&page={{cursor}}&size=100",
            "next": "page",
            "size": 100,
            "ascending": True,
        }
        return json.dumps(described | keys)


def graphql_pages(pages: Sequence[Sequence[dict[str, Any]]]) -> Callable[[Received], bytes]:
    """The list of Shopify, whose cursors are the places in its index."""

    def respond(received: Received) -> bytes:
        variables = json.loads(received.body)["variables"]
        number = int((variables["after"] or "c0").removeprefix("c"))
        since = variables["filter"].partition("'")[2].partition("'")[0]
        # The filter selects by the documents, and the place of a document that has just changed is still the old one.
        found = [[node for node in page if node["updatedAt"] >= since] for page in pages]
        found = [page for page in found if page]
        nodes, more = found[number], number + 1 < len(found)
        info = {"hasNextPage": more, "endCursor": f"c{number + 1}"}
        return http(200, json.dumps({"data": {"orders": {"nodes": nodes, "pageInfo": info}}}).encode())

    return respond


@dataclass(slots=True)
class CursorShop(MisleadingShop):
    """A list by cursors, which contain the beginning of the period and the place of the next order.

    Attributes:
        most_of_a_cursor: pages after which the cursor has expired, once.
        expired_status: of the response to an expired cursor.
        empty_at: number of a page that is empty, although others follow.
    """

    most_of_a_cursor: int = 1_000
    expired_status: int = 410
    empty_at: int = 0

    def respond(self, received: Received) -> bytes:
        """Respond to one request."""
        date = format_datetime(datetime.now(UTC), usegmt=True)
        values = query(received)
        self.pages.append(values)
        since, at, number = (values.get("cursor") or f"{values['since']}|0|1").split("|")
        if int(number) > self.most_of_a_cursor:
            self.most_of_a_cursor = 1_000
            return http(self.expired_status, b'{"message":"the cursor has expired"}', date=date)
        size = int(values["size"])
        place = self.listed(self.read(since))[int(at) : int(at) + size]
        if self.broken.intersection(place):
            return http(500, b"{}", date=date)
        if self.empty_at == int(number):
            size, place = 0, []
        elements = [{"id": name, "updated_at": self.write(self.orders[name])} for name in place]
        has_more = int(at) + size < len(self.listed(self.read(since)))
        following = f"{since}|{int(at) + size}|{int(number) + 1}" if has_more else None
        body = {"orders": elements, "next": following, "more": has_more}
        return http(200, json.dumps(body).encode(), date=date)

    def described(self, **keys: Any) -> str:
        """The description of the list in the configuration."""
        url = f"{self.url}/orders?since={{since}}&cursor={{cursor}}&size={{size}}"
        described = {"url": url, "items": "orders", "next": "next", "more": "more", "size": 100, "ascending": True}
        return json.dumps(described | keys)
