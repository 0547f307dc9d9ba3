"""Logs in the users whom a reverse proxy has authenticated, by the header that it adds to their requests."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller
from ingest.domain.api_key import Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LONGEST_NAME = 128


@dataclass(frozen=True, slots=True)
class ForwardedUsers:
    """The users of a reverse proxy. They all have the same scopes.

    Attributes:
        header: Contains the user's name.
        proxies: Addresses of the proxy. The header of other clients is ignored.
        scopes: The scopes of all users.
    """

    header: str
    proxies: Sequence[Network]
    scopes: frozenset[Scope]

    def caller_of(self, request: web.Request) -> Caller | None:
        """Return the user who sent a request through the proxy, or None for a request that came another way.

        Raises:
            Problem: 401 for a request of the proxy without a user, 403 for a user without a scope of the console.
        """
        if not self._is_proxy(request.remote):
            return None
        names = request.headers.getall(self.header, [])
        name = names[0].strip() if len(names) == 1 else ""
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise Problem(401, "no_user", f"the reverse proxy sent no user in the header {self.header}")
        # The colon distinguishes users from API keys, whose names contain none.
        return Caller(f"proxy:{name}", self.scopes, check=self._check)

    def _check(self, scope: Scope) -> None:
        if scope not in self.scopes:
            detail = f"users of the reverse proxy lack the scope {scope.value}"
            raise Problem(403, "missing_scope", detail, scope=scope.value)

    def _is_proxy(self, remote: str | None) -> bool:
        try:
            address = ipaddress.ip_address(remote or "")
        except ValueError:
            return False
        # A socket of both protocols shows addresses of IPv4 as `::ffff:10.0.0.7`.
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.proxies)
