"""Admits programs of the host itself to an API without keys, and no page that a browser on that host shows.

A page may send requests to a loopback address. Its own name may even resolve to that address (DNS rebinding), and then the
browser treats the API as part of the page's site. The `Host` header still contains the page's name.
"""

import ipaddress
from urllib.parse import urlsplit

from multidict import MultiMapping

from ingest.api.http.admitting import OpenAccess
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller
from ingest.domain.api_key import Scope


class LoopbackAccess(OpenAccess):
    """Admits requests to a loopback name or address that no page of another site has sent."""

    def admit(self, headers: MultiMapping[str], scope: Scope, source: str | None) -> Caller:
        """As `OpenAccess`.

        Raises:
            Problem: 403 for another host or origin.
        """
        hosts = headers.getall("Host", [])
        if len(hosts) != 1 or not _names_loopback(hosts[0]):
            raise Problem(
                403, "foreign_host", "without API keys, the Host header must name localhost or a loopback address"
            )
        for origin in headers.getall("Origin", []):
            if origin.partition("://")[2].lower() != hosts[0].lower():
                raise Problem(403, "cross_origin", "without API keys, pages of another origin cannot use the API")
        return super().admit(headers, scope, source)


def is_loopback(host: str) -> bool:
    """Whether a name or address is one of this host only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names_loopback(authority: str) -> bool:
    try:
        parts = urlsplit(f"//{authority}")
    except ValueError:
        return False
    return parts.netloc == authority and "@" not in authority and is_loopback(parts.hostname or "")
