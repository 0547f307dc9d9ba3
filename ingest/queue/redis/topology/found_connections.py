"""Connections to the primary of a Sentinel set, which find it when they connect, and connections to the Sentinels."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from redis.exceptions import ConnectionError  # noqa: A004  redis-py's own, which is no OSError

from ingest.queue.redis.checked_connections import CheckedTcp, CheckedTls, NoQueueThere

if TYPE_CHECKING:
    _Base = CheckedTcp
else:
    _Base = object


class FoundAddress(Protocol):
    """Finds a server whose address may change."""

    async def find(self) -> tuple[str, int]:
        """Return its address now."""

    def confirm(self, address: tuple[str, int]) -> None:
        """Note that the server is at that address."""

    def is_former(self, address: tuple[str, int]) -> bool:
        """Whether the server has moved from that address."""


class _Primary(_Base):
    """Connects to the address of the primary at that time, and makes sure that the server is a primary."""

    def __init__(self, *, address: FoundAddress, **options: Any) -> None:
        super().__init__(**options)
        self._address = address

    async def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        if self.is_connected:
            return
        self.host, self.port = await self._address.find()
        # redis-py returns to it after an announced maintenance.
        self.orig_host_address = self.host
        await super().connect_check_health(*arguments, **options)
        self._address.confirm((self.host, self.port))

    async def close_if_unusable(self) -> None:
        if self.is_connected and self._address.is_former((self.host, self.port)):
            # A former primary that was cut off may still accept writes, which are lost.
            await self.disconnect(nowait=True)
        await super().close_if_unusable()

    def check_server(self, about: Mapping[bytes, Any]) -> None:
        super().check_server(about)
        # During a failover, Sentinels may report a primary that has become a replica already.
        if about.get(b"role") == b"replica":
            raise ConnectionError(f"the server at {self.host}:{self.port} is a replica; waiting for a primary")


class PrimaryTcp(_Primary, CheckedTcp):
    """A connection without TLS."""


class PrimaryTls(_Primary, CheckedTls):
    """A connection with TLS."""


class _Sentinel(_Base):
    """Makes sure that the server is a Sentinel."""

    def check_server(self, about: Mapping[bytes, Any]) -> None:
        if about.get(b"mode") != b"sentinel":
            raise NoQueueThere("the server is not a Sentinel; without Sentinels, write redis://host:6379/0")


class SentinelTcp(_Sentinel, CheckedTcp):
    """A connection without TLS."""


class SentinelTls(_Sentinel, CheckedTls):
    """A connection with TLS."""
