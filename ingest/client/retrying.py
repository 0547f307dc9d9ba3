"""Sends a request again while that may help: after lost connections, 429 and 503, until the deadline of the call."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_before_delay, wait_random_exponential

from ingest.client.answers import ApiResponse, checked
from ingest.client.connection import ApiConnection, Request
from ingest.client.errors import ApiError, ApiUnavailable

_AT_A_TIME = 100
_backoff = wait_random_exponential(multiplier=0.1, max=10.0)


class Retrying:
    """Sends requests.

    Args:
        connection: sends each try.
        timeout: seconds for one try.
        deadline: seconds for a request with all its tries.
    """

    def __init__(self, connection: ApiConnection, *, timeout: float, deadline: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._deadline = deadline
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def send(self, request: Request) -> ApiResponse:
        """The answer of a call that has succeeded.

        Raises:
            ApiError: why it has not. What may pass is raised once there is no time for another try.
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

    @asynccontextmanager
    async def _slot(self, ends_at: float) -> AsyncIterator[None]:
        """Limits concurrent requests. The wait for it does not count as the API's."""
        try:
            async with asyncio.timeout_at(ends_at):
                await self._slots.acquire()
        except TimeoutError:
            raise ApiUnavailable(f"{_AT_A_TIME} requests at a time did not end in time") from None
        try:
            yield
        finally:
            self._slots.release()


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.may_pass


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    pause = _backoff(state)
    if isinstance(error, ApiError) and error.told is not None:
        # Not earlier than requested, and spread over all clients.
        pause = max(pause, error.told * random.uniform(1.0, 1.1))  # noqa: S311  it spreads clients, and is no secret
    return pause
