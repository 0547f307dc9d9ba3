"""The external API as a user describes it: which requests are sent, and the headers that identify us."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import quote

import msgspec

from ingest.domain.fetch.request_headers import parse_headers
from ingest.domain.fetch.response_rules import ResponseRule
from ingest.domain.fetch.status_overrides import StatusOverride
from ingest.domain.fetch.token_store import TokenStore
from ingest.upstream.http.tls_context import TlsFiles
from ingest.upstream.http.transport import Kind, Method
from ingest.upstream.responses import NO_OVERRIDES

AuthKind = Literal["none", "bearer", "basic", "header", "oauth2"]
ClientAuth = Literal["basic", "body"]
Grant = Literal["client_credentials", "refresh_token"]
# Sent with every request, unless the user's own headers replace it.
HEADERS: Mapping[str, str] = {"Accept": "application/json", "User-Agent": "order-ingest"}


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that must not be shown.

    Attributes:
        setting: the name of the setting with its file, for messages.
        value: as it was when the settings were read.
        file: where it came from, if it is to be read again when that changes.
        check: returns the value to use, or raises `ValueError` without quoting the secret.
    """

    setting: str
    value: str = field(repr=False)
    file: Path | None
    check: Callable[[str], str]


class OAuth2(msgspec.Struct, frozen=True):
    """How access tokens are requested by OAuth 2.0 (RFC 6749): for client credentials (section 4.4), or a refresh token (section 6).

    Attributes:
        url: token endpoint of the authorization server.
        scope: the requested scope, if any.
        client_auth: where the client's ID and secret go: HTTP Basic, or the body. The ID of a client without a secret goes into the body.
        grant: the grant that is used.
        store: shared by the processes of the source, for a server that replaces refresh tokens.
        proxy: URL of the proxy to the authorization server.
    """

    url: str
    scope: str | None = None
    client_auth: ClientAuth = "basic"
    grant: Grant = "client_credentials"
    proxy: str | None = None
    store: TokenStore | None = None


class Access(msgspec.Struct, frozen=True):
    """What identifies us.

    Attributes:
        kind: how.
        secrets: by role: `headers`, `token`, `user`, `password`, `client_id`, `client_secret`, `refresh_token`, `store_key`, and
            `parameters`, further ones of the request for a token, as in a query.
        header: the name of the header for the token.
        oauth2: for the kind `oauth2`.
        tls: files of certificates.
    """

    kind: AuthKind = "none"
    secrets: Mapping[str, Secret] = msgspec.field(default_factory=dict)
    header: str = "Authorization"
    oauth2: OAuth2 | None = None
    tls: TlsFiles = msgspec.field(default_factory=TlsFiles)


class Endpoint(msgspec.Struct, frozen=True):
    """The external API.

    Attributes:
        url: template with `{order_id}`, unless the body has it.
        order_url: template of the URL of a single order, to which the paths of its parts are relative. Empty if it is `url`.
        method: of requests for orders.
        body: template with `{order_id}`, for POST.
        access: what identifies us.
        statuses: what statuses mean, where that differs from the usual.
        responses: rules that give responses another meaning than their status, the first match decides.
        kind: the transport.
        proxy: URL of the proxy for all requests.
    """

    url: str
    order_url: str = ""
    method: Method = "GET"
    body: str | None = None
    access: Access = msgspec.field(default_factory=Access)
    statuses: Mapping[int, StatusOverride] = msgspec.field(default_factory=lambda: NO_OVERRIDES)
    responses: tuple[ResponseRule, ...] = ()
    kind: Kind = "native"
    proxy: str | None = None

    @property
    def has_proxy(self) -> bool:
        """Whether any request goes through a proxy."""
        return self.proxy is not None or (self.access.oauth2 is not None and self.access.oauth2.proxy is not None)


class Credential(Protocol):
    """The headers of requests. When they change, requests that are running finish with the earlier ones."""

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


def fixed_headers(endpoint: Endpoint, values: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers that follow from the secrets, by role. An OAuth 2.0 token is added to them."""
    own = parse_headers(values.get("headers", ""))
    if endpoint.body is not None and "content-type" not in {name.lower() for name in own}:
        own = {"Content-Type": "application/json", **own}
    access = endpoint.access
    match access.kind:
        case "bearer":
            return headers_with(own, bearer(values["token"]))
        case "basic":
            return headers_with(own, basic(values["user"], values["password"]))
        case "header":
            return headers_with(own, {access.header: values["token"]})
        case "none" | "oauth2":
            return headers_with(own, {})


def media_type_of(endpoint: Endpoint) -> str:
    """Return the media type of a body, in lower case. Headers that are replaced later do not change it."""
    headers = endpoint.access.secrets.get("headers")
    own = parse_headers("" if headers is None else headers.value)
    types = [value for name, value in own.items() if name.lower() == "content-type"]
    return types[0].partition(";")[0].strip().lower() if types else "application/json"


def headers_with(own: Mapping[str, str], authorization: Mapping[str, str]) -> Mapping[str, str]:
    """Return all headers of a request: the usual headers, replaced by the user's own, and the headers of the credential."""
    headers: dict[str, tuple[str, str]] = {}
    for given in (HEADERS, own, authorization):
        headers |= {name.lower(): (name, value) for name, value in given.items()}
    return dict(headers.values())


def token_in(header: str, token: str) -> Mapping[str, str]:
    """Return the header with an access token: a bearer token in `Authorization`, and the token itself in any other header."""
    return bearer(token) if header.lower() == "authorization" else {header: token}


def bearer(token: str) -> Mapping[str, str]:
    """Return the header with a bearer token (RFC 6750)."""
    return {"Authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> Mapping[str, str]:
    """Return the header with a user and a password (RFC 7617)."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def basic_of_client(client_id: str, secret: str) -> Mapping[str, str]:
    """Return the header by which a client identifies itself to an authorization server (RFC 6749, section 2.3.1)."""
    return basic(quote(client_id, safe=""), quote(secret, safe=""))
