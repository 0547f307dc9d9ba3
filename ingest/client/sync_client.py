"""The client for programs without asyncio: Django, Flask, scripts, threads, processes that fork."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Self

from ingest.client.calls import NDJSON, checked_source, filters_of
from ingest.client.client import DEADLINE, TIMEOUT, Client
from ingest.client.connection import ApiEndpoint
from ingest.client.errors import ApiUnavailable
from ingest.client.parts import MOST_IDS, batched, checked_ids, checked_size, ndjson, new_key, part_key
from ingest.client.responses import FoundOrder
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.orders.order import Order
from ingest.domain.source_name import UNNAMED
from ingest.loop_thread import Background


class SyncClient:
    """Calls the HTTP API, from any thread. See `Client` for the methods and their errors.

    You can create it at import time, and share it between threads and forked processes. It connects when you first use it.
    It does not support gevent and eventlet.

    It takes the arguments of `Client.connect`.

    Raises:
        ValueError: If an argument cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca_file: str | None = None,
        allow_http: bool = False,
        source: str = UNNAMED,
        timeout: float = TIMEOUT,
        deadline: float = DEADLINE,
    ) -> None:
        # An argument that cannot be used is an error of this call, not of the first call that connects.
        endpoint = ApiEndpoint(url, key, ca_file, allow_http)
        checked_source(source)

        def connect() -> AbstractAsyncContextManager[Client]:
            # The endpoint's key, which is not shown where local variables are.
            return Client.connect(
                endpoint.url,
                key=endpoint.key,
                ca_file=ca_file,
                allow_http=allow_http,
                source=source,
                timeout=timeout,
                deadline=deadline,
            )

        self._url = endpoint.url
        self._background = Background(connect, "ingest-client", lambda why: ApiUnavailable(f"the client {why}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SyncClient {self._url}>"

    def announce(
        self,
        order_ids: str | Iterable[str],
        *,
        idempotency_key: str | None = None,
        express: bool = False,
        origin: str | None = None,
    ) -> Accepted:
        """Enqueue orders. See `Client.announce`. An iterator runs in the calling thread, and may call this client."""
        listed = checked_ids(order_ids)
        return self._background.run(
            lambda client: client.announce(listed, idempotency_key=idempotency_key, express=express, origin=origin)
        )

    def announce_stream(
        self, order_ids: Iterable[str], *, idempotency_key: str | None = None, batch: int = MOST_IDS
    ) -> Accepted:
        """Enqueue all orders of an iterator, which runs in the calling thread. See `Client.announce_stream`."""
        key, total = new_key(idempotency_key), Accepted(0, 0)
        for number, part in enumerate(batched(order_ids, checked_size(batch))):
            total = self._announce_lines(part, part_key(key, number), total)
        return total

    def put(self, order_id: str, document: bytes | str | Mapping[str, Any] | Order) -> Accepted:
        """Push a whole order. See `Client.put`."""
        return self._background.run(lambda client: client.put(order_id, document))

    def get(self, order_id: str) -> FoundOrder:
        """Find an order. See `Client.get`."""
        return self._background.run(lambda client: client.get(order_id))

    def orders(self, *, limit: int | None = None, **filters: str | datetime) -> Iterator[dict[str, Any]]:
        """Iterate over the stored orders, page by page. See `Client.orders`."""
        selection = filters_of(limit, filters)
        orders, cursor = self._read_page(selection, None)
        while True:
            yield from orders
            if cursor is None:
                return
            orders, cursor = self._read_page(selection, cursor)

    def erase(self, order_id: str) -> None:
        """Erase an order for good. See `Client.erase`."""
        self._background.run(lambda client: client.erase(order_id))

    def queue(self) -> dict[str, Any]:
        """Return the state of the queue. See `Client.queue`."""
        return self._background.run(lambda client: client.queue())

    def close(self) -> None:
        """Disconnect this process. Calls that still wait raise `ApiUnavailable`. A later call connects again."""
        self._background.close()

    def _announce_lines(self, part: list[str], key: str, before: Accepted) -> Accepted:
        return self._background.run(lambda client: client.calls.announce(ndjson(part), key, before, NDJSON))

    def _read_page(self, filters: Mapping[str, str], cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        return self._background.run(lambda client: client.calls.read_page(filters, cursor))
