"""What identifies us to the external API: the headers of every request.

A credential may change while requests are running: those that have begun finish with the headers that they began with.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Literal, Protocol
from urllib.parse import quote

AuthKind = Literal["none", "bearer", "basic", "header", "oauth2"]

# Sent with every request, unless the user's own headers replace it.
HEADERS: Mapping[str, str] = {"Accept": "application/json", "User-Agent": "order-ingest"}


class Credential(Protocol):
    """The headers of requests."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers of the next request, or None if `obtain` has to be called. A mapping is never changed, only replaced."""

    async def obtain(self) -> Mapping[str, str]:
        """Return the headers of the next request.

        Raises:
            Fault: there are none at present.
        """

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """After a 401 to a request with these headers: return whether there are others now.

        Raises:
            Fault: as `obtain`.
        """


class FixedCredential:
    """Headers that stay until a secret changes.

    Args:
        current: returns them.
    """

    def __init__(self, current: Callable[[], Mapping[str, str]] = lambda: HEADERS) -> None:
        self._current = current
        self.headers = current()

    def update(self) -> None:
        """A secret has changed."""
        self.headers = self._current()

    async def obtain(self) -> Mapping[str, str]:
        """See `Credential`."""
        return self.headers

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """See `Credential`: only a file that has changed brings others, and it is noticed without this."""
        return self.headers is not refused


def headers_with(own: Mapping[str, str], authorization: Mapping[str, str]) -> Mapping[str, str]:
    """Return all headers of a request: the usual headers, replaced by the user's own, and the headers of the credential."""
    headers: dict[str, tuple[str, str]] = {}
    for given in (HEADERS, own, authorization):
        headers |= {name.lower(): (name, value) for name, value in given.items()}
    return dict(headers.values())


def bearer(token: str) -> Mapping[str, str]:
    """Return the header with a bearer token (RFC 6750)."""
    return {"Authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> Mapping[str, str]:
    """Return the header with a user and a password (RFC 7617)."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def basic_of_client(client_id: str, secret: str) -> Mapping[str, str]:
    """Return the header by which a client identifies itself to an authorization server (RFC 6749, section 2.3.1)."""
    return basic(quote(client_id, safe=""), quote(secret, safe=""))
