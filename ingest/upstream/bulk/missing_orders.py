"""Requests an order by its own URL that is missing from the response to a bulk request.

A list leaves out an order that does not exist, that the credential may not read, or that cannot be loaded. Only the response for the
order alone distinguishes them. WooCommerce's list also leaves out drafts, which its own URL shows.
"""

from collections.abc import Awaitable, Callable

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, PermanentFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.pages import PageRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.upstream.parts import Fetches

_AT_ORDER = PageRequest("")


class MissingOrders:
    """Keeps the port `Upstream`, in front of bulk requests.

    Args:
        bulk: requests several orders together.
        fetch_page: requests a page relative to the URL of an order.
    """

    def __init__(
        self, bulk: Fetches, fetch_page: Callable[[FetchRequest, PageRequest], Awaitable[Fetched | Failed]]
    ) -> None:
        self._bulk = bulk
        self._fetch_page = fetch_page

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """Return the order, or the response for it alone if it is missing from the list."""
        result = await self._bulk.fetch(request)
        if isinstance(result, Fetched) or result.is_shared or not _is_missing(result):
            return result
        alone = await self._fetch_page(request, _AT_ORDER)
        if isinstance(alone, Failed) and isinstance(alone.fault, CredentialFault):
            # The list has accepted the credential.
            error = f"the order may not be read, and the list leaves it out: {alone.fault}"
            return Failed(PermanentFault(DeadReason.REJECTED, error), alone.exchange)
        return alone

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """Return the result of a single request."""
        return await self._bulk.fetch_once(request)


def _is_missing(failed: Failed) -> bool:
    fault = failed.fault
    return isinstance(fault, PermanentFault) and fault.reason is DeadReason.NOT_FOUND and not fault.is_configured
