"""The client for asyncio.

Every request may be repeated without effect: order IDs are announced under an idempotency key, which all tries of a request
share. When the process dies during a call, its orders may or may not have been accepted: with an idempotency key of your own,
the call can be made again.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Self

import msgspec

from ingest.client.answers import FoundOrder, accepted, found_order, json_object
from ingest.client.calls import NDJSON, Calls, checked_source, filters_of
from ingest.client.connection import ApiConnection, ApiEndpoint, Request
from ingest.client.errors import UnexpectedAnswer
from ingest.client.parts import MOST_IDS, abatched, batched, checked_ids, checked_size, ndjson, new_key, part_key
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.orders.order import Order, parse_order_id
from ingest.domain.orders.order_id import quoted_ids
from ingest.domain.source_name import UNNAMED

TIMEOUT = 10.0
DEADLINE = 60.0


class Client:
    """Calls the HTTP API. Open it with `connect`; for the tasks of one event loop, see `SyncClient` for threads.

    Connection errors, 429 and 503 are tried again until the deadline, not before the time that the API names.

    Attributes:
        calls: sends the requests.
    """

    def __init__(
        self, connection: ApiConnection, endpoint: ApiEndpoint, source: str, *, timeout: float, deadline: float
    ) -> None:
        self.calls = Calls(connection, source, timeout=timeout, deadline=deadline)
        self._url = endpoint.url

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        key: str | None = None,
        ca_file: str | None = None,
        allow_http: bool = False,
        source: str = UNNAMED,
        timeout: float = TIMEOUT,  # noqa: ASYNC109  of each request, not of the block
        deadline: float = DEADLINE,
    ) -> AsyncIterator[Self]:
        """A client with its own connections, which connects when it is first used.

        Args:
            url: of the API, such as https://orders.example.
            key: the API key, or None for an API without keys.
            ca_file: PEM file of the authorities to trust instead of the system's.
            allow_http: whether to send the key without TLS to another machine.
            source: the source of the orders, if the API serves several. By default the only one.
            timeout: seconds for one try of a request.
            deadline: seconds for a request with all its tries.

        Raises:
            ValueError: if one of them cannot be used.
        """
        endpoint = ApiEndpoint(url, key, ca_file, allow_http)
        async with ApiConnection.open(endpoint) as connection:
            yield cls(connection, endpoint, checked_source(source), timeout=timeout, deadline=deadline)

    def __repr__(self) -> str:
        return f"<Client {self._url}>"

    async def announce(
        self,
        order_ids: str | Iterable[str],
        *,
        idempotency_key: str | None = None,
        express: bool = False,
        origin: str | None = None,
    ) -> Accepted:
        """Enqueue orders, and return when the queue has all of them.

        More than 10,000 go in several requests. A call that fails has enqueued `ApiError.accepted` of them.

        Args:
            order_ids: an order ID, or several.
            idempotency_key: under one key, orders are accepted once. By default the call uses a new key.
            express: whether workers read the orders before those of the main lane.
            origin: which program enqueues them: up to 100 printable characters.

        Raises:
            InvalidOrderId: before anything is sent.
            InvalidIdempotencyKey: likewise.
            ApiError: if the orders could not be announced.
        """
        listed, key, total = checked_ids(order_ids), new_key(idempotency_key), Accepted(0, 0)
        options: dict[str, bool | str] = {"express": True} if express else {}
        if origin is not None:
            options["origin"] = origin
        for number, part in enumerate(batched(listed, MOST_IDS)):
            body = msgspec.json.encode({"order_ids": part, **options})
            total = await self.calls.announce(body, part_key(key, number), total)
        return total

    async def announce_stream(
        self,
        order_ids: Iterable[str] | AsyncIterable[str],
        *,
        idempotency_key: str | None = None,
        batch: int = MOST_IDS,
    ) -> Accepted:
        """Announce as many orders as an iterator has, holding no more than one request's.

        Args:
            order_ids: order IDs. A request is sent whenever `batch` of them have gathered, and at the end.
            idempotency_key: as for `announce`; the same stream, with the same `batch`, is accepted once.
            batch: IDs of one request, up to 10,000.

        Raises:
            InvalidOrderId: of the first invalid ID. The orders of the earlier requests are enqueued.
            ApiError: if not all orders could be enqueued. `accepted` counts the others.
        """
        key, number, total = new_key(idempotency_key), 0, Accepted(0, 0)
        async for part in abatched(order_ids, checked_size(batch)):
            total = await self.calls.announce(ndjson(part), part_key(key, number), total, NDJSON)
            number += 1
        return total

    async def put(self, order_id: str, document: bytes | str | Mapping[str, Any] | Order) -> Accepted:
        """Push a whole order, which a worker stores without fetching it. Sent again, it is stored once.

        Args:
            order_id: its ID.
            document: the order as JSON, in our shape or, if the API uses a mapping, in the source's.

        Raises:
            InvalidOrderId: before anything is sent.
            InvalidAnnouncement: if the document cannot be sent.
            ApiError: if the order was not accepted.
        """
        body = Announcement(order_id, document=document).document
        assert isinstance(body, bytes)  # noqa: S101  an announcement has encoded it
        return accepted(
            await self.calls.send(
                Request("PUT", f"{self.calls.orders}/{quoted_ids(order_id)}", body, "application/json")
            )
        )

    async def get(self, order_id: str) -> FoundOrder:
        """The API's information about an order: the stored order and its ingestion state.

        Raises:
            InvalidOrderId: before anything is sent.
            NotFound: if there is no such order.
            ApiError: if that is unknown.
        """
        return found_order(await self.calls.read(f"{self.calls.orders}/{quoted_ids(parse_order_id(order_id))}"))

    async def orders(self, *, limit: int | None = None, **filters: str | datetime) -> AsyncIterator[dict[str, Any]]:
        """The stored orders, page by page, in the order of their IDs: each as `order`, without lines, and `row`.

        Args:
            limit: orders of one page.
            filters: such as `status="placed"`, `placed_from=…`: see the HTTP API.

        Raises:
            ApiError: if a page could not be read.
        """
        selection = filters_of(limit, filters)
        orders, cursor = await self.calls.read_page(selection, None)
        while True:
            for order in orders:
                yield order
            if cursor is None:
                return
            orders, cursor = await self.calls.read_page(selection, cursor)

    async def erase(self, order_id: str) -> None:
        """Erase an order for good, wherever it is. It need not exist, and may have been erased before.

        Raises:
            InvalidOrderId: before anything is sent.
            ApiError: if the order may not be erased everywhere yet: erase it again.
        """
        answer = json_object(
            await self.calls.send(Request("DELETE", f"{self.calls.orders}/{quoted_ids(parse_order_id(order_id))}"))
        )
        if answer.get("order_id") != order_id:
            raise UnexpectedAnswer("the answer does not confirm that the order is erased: is this the URL of the API?")

    async def queue(self) -> dict[str, Any]:
        """The state of the queue: depth, retries, dead letters.

        Raises:
            ApiError: if that is unknown.
        """
        return await self.calls.read(f"{self.calls.base}/queue")
