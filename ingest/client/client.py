"""The client for asyncio.

You can safely repeat every request. All tries of a call share an idempotency key, so its order IDs are enqueued once. If the
process dies during a call, its orders may or may not be in the queue. Pass your own idempotency key to repeat the call later.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Self

import msgspec

from ingest.client.calls import NDJSON, Calls, checked_source, filters_of
from ingest.client.connection import ApiConnection, ApiEndpoint, Request
from ingest.client.errors import UnexpectedResponse
from ingest.client.parts import MOST_IDS, abatched, batched, checked_ids, checked_size, ndjson, new_key, part_key
from ingest.client.responses import FoundOrder, accepted, found_order, json_object
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.orders.order import Order, parse_order_id
from ingest.domain.orders.order_id import quoted_ids
from ingest.domain.source_name import UNNAMED

TIMEOUT = 10.0
DEADLINE = 60.0


class Client:
    """Calls the HTTP API, for the tasks of one event loop. Open it with `connect`. For threads, see `SyncClient`.

    It repeats a request after connection errors, 429 and 503, until the deadline and not before the time that the API names.

    Attributes:
        calls: Sends the requests.
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
        """Open a client with its own connections, which connects when you first use it.

        Args:
            url: The URL of the API, such as https://orders.example.
            key: The API key, or None for an API without keys.
            ca_file: PEM file of the authorities to trust instead of the system's.
            allow_http: Whether to send the key without TLS to another machine.
            source: The source of the orders, if the API serves several. By default the only one.
            timeout: Seconds for one try of a request.
            deadline: Seconds for a request with all its tries.

        Raises:
            ValueError: If an argument cannot be used.
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
        """Enqueue orders, and return when the queue holds all of them.

        More than 10,000 orders are sent in several requests. If the call fails, `ApiError.accepted` counts the enqueued orders.

        Args:
            order_ids: An order ID, or several.
            idempotency_key: Orders with the same key are accepted once. By default, the call uses a new key.
            express: Whether workers read the orders before the main lane.
            origin: The program that enqueues them, up to 100 printable characters.

        Raises:
            InvalidOrderId: Before anything is sent.
            InvalidIdempotencyKey: Before anything is sent.
            ApiError: If the orders could not be enqueued.
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
        """Enqueue all orders of an iterator, and hold only the IDs of one request.

        Args:
            order_ids: Order IDs. A request is sent whenever `batch` of them have gathered, and at the end.
            idempotency_key: See `announce`. The same stream with the same `batch` is accepted once.
            batch: IDs of one request, up to 10,000.

        Raises:
            InvalidOrderId: An ID is invalid. The orders of the earlier requests are enqueued.
            ApiError: If an order could not be enqueued. `accepted` counts the orders before it.
        """
        key, number, total = new_key(idempotency_key), 0, Accepted(0, 0)
        async for part in abatched(order_ids, checked_size(batch)):
            total = await self.calls.announce(ndjson(part), part_key(key, number), total, NDJSON)
            number += 1
        return total

    async def put(self, order_id: str, document: bytes | str | Mapping[str, Any] | Order) -> Accepted:
        """Push a whole order, which a worker stores without fetching it. You can safely repeat the call.

        Args:
            order_id: The ID of the order.
            document: The order as JSON, in our shape, or in the shape of the source if the API uses a mapping.

        Raises:
            InvalidOrderId: Before anything is sent.
            InvalidAnnouncement: If the document cannot be sent.
            ApiError: If the order was not accepted.
        """
        body = Announcement(order_id, document=document).document
        assert isinstance(body, bytes)  # noqa: S101  an announcement has encoded it
        return accepted(
            await self.calls.send(
                Request("PUT", f"{self.calls.orders}/{quoted_ids(order_id)}", body, "application/json")
            )
        )

    async def get(self, order_id: str) -> FoundOrder:
        """Find an order, and return it with its ingestion state.

        Raises:
            InvalidOrderId: Before anything is sent.
            NotFound: If there is no such order.
            ApiError: If the state is unknown.
        """
        return found_order(await self.calls.read(f"{self.calls.orders}/{quoted_ids(parse_order_id(order_id))}"))

    async def orders(self, *, limit: int | None = None, **filters: str | datetime) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the stored orders by ID, page by page. Each contains `order`, without lines, and `row`.

        Args:
            limit: Number of orders in a page.
            filters: The parameters of the HTTP API, such as `status="placed"` and `placed_from=…`.

        Raises:
            ApiError: If a page could not be read.
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
        """Erase an order for good, wherever it is. An order that does not exist is no error.

        Raises:
            InvalidOrderId: Before anything is sent.
            ApiError: If the order may not be erased everywhere yet. Erase it again.
        """
        response = json_object(
            await self.calls.send(Request("DELETE", f"{self.calls.orders}/{quoted_ids(parse_order_id(order_id))}"))
        )
        if response.get("order_id") != order_id:
            raise UnexpectedResponse(
                "the response does not confirm that the order is erased: is this the URL of the API?"
            )

    async def queue(self) -> dict[str, Any]:
        """Return the state of the queue, such as its depth, retries and dead letters.

        Raises:
            ApiError: If the state is unknown.
        """
        return await self.calls.read(f"{self.calls.base}/queue")
