"""One Redis at a fixed address."""

from typing import Any

from ingest.domain.redis_urls.redis_addresses import address_text
from ingest.queue.redis.checked_connections import connection_options
from ingest.queue.redis.topology.port import SoleServer


class StandaloneTopology(SoleServer):
    """Owns all keys. Keeps the contracts of `Topology` and `Owner`.

    Raises:
        ValueError: the URL is invalid.
    """

    name = "Redis"

    def __init__(self, url: str) -> None:
        self._url = url
        connection_options(url)

    def connection_options(self, **defaults: Any) -> dict[str, Any]:
        """Return the options of the URL."""
        return connection_options(self._url, **defaults)

    async def current_address(self) -> str:
        """Return the address in the URL."""
        options = connection_options(self._url)
        return options.get("path") or address_text((options.get("host", "localhost"), options.get("port", 6379)))

    async def confirm(self) -> None:
        """Confirm it, because there is no other server."""
