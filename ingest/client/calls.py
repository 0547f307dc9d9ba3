"""The calls of both clients. Each is sent again while that may help, until its deadline."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_before_delay, wait_random_exponential

from ingest.client.connection import ApiConnection, Request
from ingest.client.errors import ApiError, ApiUnavailable, UnexpectedResponse
from ingest.client.responses import ApiResponse, accepted, checked, json_object
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.source_name import InvalidSourceName, parse_source_name

NDJSON = "application/x-ndjson"
_AT_A_TIME = 100
_backoff = wait_random_exponential(multiplier=0.1, max=10.0)


class Calls:
    """Sends requests, and repeats them after lost connections, 429 and 503.

    Attributes:
        base: The path above all paths of the source.
        orders: The path of orders.

    Args:
        connection: Sends each try.
        source: The name of the source, or an empty text for the only one.
        timeout: Seconds for one try.
        deadline: Seconds for a request with all its tries.
    """

    def __init__(self, connection: ApiConnection, source: str, *, timeout: float, deadline: float) -> None:
        self.base = f"/v1/sources/{source}" if source else "/v1"
        self.orders = f"{self.base}/orders"
        self._connection = connection
        self._timeout = timeout
        self._deadline = deadline
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def send(self, request: Request) -> ApiResponse:
        """Return the response of a successful call.

        Raises:
            ApiError: The error of the call. A temporary error is raised when there is no time for another try.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._deadline

        async def once() -> ApiResponse:
            async with self._slot(ends_at):
                left = max(0.001, ends_at - loop.time())
                return checked(await self._connection.send(request, min(self._timeout, left)))

        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass), stop=stop_before_delay(self._deadline), wait=_pause, reraise=True
        )
        try:
            return await retrying(once)
        except ApiError as error:
            error.args = tuple(self._connection.hide(str(part)) for part in error.args)
            raise

    async def announce(
        self, body: bytes, key: str, before: Accepted, content_type: str = "application/json"
    ) -> Accepted:
        """Enqueue the orders of one request.

        Args:
            body: The order IDs.
            key: The idempotency key.
            before: The orders that earlier requests of the call have enqueued.
            content_type: The media type of the body.
        """
        try:
            told = accepted(await self.send(Request("POST", self.orders, body, content_type, key)))
        except ApiError as error:
            # Of NDJSON, the lines before the problem are in the queue.
            told_here = [error.members.get(name) for name in ("accepted", "duplicates")]
            here = sum(number for number in told_here if isinstance(number, int))
            error.accepted = before.accepted + before.duplicates + here
            raise
        return Accepted(before.accepted + told.accepted, before.duplicates + told.duplicates)

    async def read(self, path: str) -> dict[str, Any]:
        """Return the content at a path."""
        return json_object(await self.send(Request("GET", path)))

    async def read_page(
        self, filters: Mapping[str, str], cursor: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of the list of orders, and the cursor of the next page, or None after the last.

        Args:
            filters: The filters of the query.
            cursor: The cursor of the page, or None for the first page.
        """
        query = urlencode(filters if cursor is None else {**filters, "cursor": cursor})
        response = await self.read(f"{self.orders}?{query}" if query else self.orders)
        orders, following = response.get("orders"), response.get("next_cursor")
        if not isinstance(orders, list) or not all(isinstance(order, dict) for order in orders):
            raise UnexpectedResponse("the response is not a list of orders")
        if not (following is None or (isinstance(following, str) and following)):
            raise UnexpectedResponse("the response contains no usable cursor")
        if following is not None and following == cursor:
            raise UnexpectedResponse("the list of orders does not continue")
        return orders, following

    @asynccontextmanager
    async def _slot(self, ends_at: float) -> AsyncIterator[None]:
        """Limit concurrent requests. The `timeout` of a request starts after this wait."""
        try:
            async with asyncio.timeout_at(ends_at):
                await self._slots.acquire()
        except TimeoutError:
            raise ApiUnavailable(f"{_AT_A_TIME} requests at a time did not end in time") from None
        try:
            yield
        finally:
            self._slots.release()


def checked_source(name: str) -> str:
    """Return the name of a source, or an empty text for the only one.

    Raises:
        ValueError: If it cannot be a name.
    """
    try:
        return name and parse_source_name(name)
    except InvalidSourceName as error:
        raise ValueError(str(error)) from None


def filters_of(limit: int | None, filters: Mapping[str, str | datetime]) -> dict[str, str]:
    """Return the filters of the list of orders for the query.

    Raises:
        ValueError: If a time is without a time zone.
    """
    texts = {} if limit is None else {"limit": str(limit)}
    for name, value in filters.items():
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{name} must include a time zone")
        texts[name] = value.isoformat() if isinstance(value, datetime) else value
    return texts


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.may_pass


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    pause = _backoff(state)
    if isinstance(error, ApiError) and error.told is not None:
        # Not earlier than requested, and spread over all clients.
        pause = max(pause, error.told * random.uniform(1.0, 1.1))  # noqa: S311  it spreads clients, and is no secret
    return pause
