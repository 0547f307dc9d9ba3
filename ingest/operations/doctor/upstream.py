"""Checks the external API: its host, its certificate, our credential, and the mapping of one order."""

import asyncio
import re
import shlex
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import (
    CredentialFault,
    Fault,
    PermanentFault,
    PostponedFault,
    ThrottledFault,
    TokenFault,
    TokenRefused,
)
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.request_headers import parse_headers
from ingest.domain.orders.order import InvalidDocument, Order, SkippedDocument
from ingest.operations.doctor.finding import Area, Checks, Finding, Level
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.http.tls_context import TlsFiles
from ingest.upstream.http.transport import INVALID_HTTP
from ingest.upstream.inspection import Host, Reached, Unreachable, reach

_OF = Checks(Area.UPSTREAM)

_EXPIRES_SOON = 14 * 86_400.0
_CREDENTIAL = (
    "check INGEST_UPSTREAM_AUTH and the settings for it, or ask the API's operator which credential is accepted"
)
# Names of headers and URL options that are credentials, even without INGEST_UPSTREAM_AUTH.
_CREDENTIAL_NAME = re.compile("key|token|secret|password|auth|cookie|signature", re.IGNORECASE)
_NOTICE = "read the changelog of the API. For denied fields, ask for the access, or remove them from the query"
_NETWORK = "check the host's name and port, the firewalls between, and HTTPS_PROXY if a proxy is required"

# By the step at which a connection fails.
_PROBLEMS = {
    "name": ("the name {0.name} cannot be resolved", _NETWORK),
    "connection": ("{0} cannot be reached", _NETWORK),
    "certificate": (
        "the certificate of {0} is not accepted",
        "its operator must renew or correct it. For a private authority, set INGEST_UPSTREAM_CA_FILE",
    ),
    "tls": (
        "the TLS handshake with {0} failed",
        "check the port and whether it is https. If it requires a certificate, set INGEST_UPSTREAM_CERT_FILE",
    ),
}


class Api(Protocol):
    """The external API as used by workers."""

    @property
    def notices(self) -> Collection[str]:
        """The notices in its responses so far."""

    async def authenticate(self) -> None:
        """Obtain the credential without requesting an order. Raises `Fault`."""

    async def fetch(self, request: FetchRequest) -> bytes:
        """Fetch the document of an order. Raises `Fault`."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """Decode the orders that a worker would store. Raises `InvalidDocument`."""


@dataclass(frozen=True, slots=True)
class UpstreamSubject:
    """The external API to examine.

    Attributes:
        endpoint: its URL and our credential.
        open_api: opens the API. Raises `ConfigError`.
        order_id: the order to request, or None for a queued or stored one.
        has_mapping: whether a mapping converts documents to orders.
        timeout: INGEST_UPSTREAM_TIMEOUT.
    """

    endpoint: Endpoint
    open_api: Callable[[], AbstractAsyncContextManager[Api]]
    order_id: str | None
    has_mapping: bool
    timeout: float


async def findings(
    subject: UpstreamSubject, known_order: Callable[[], Awaitable[str | None]], within: float
) -> list[Finding]:
    """Check the connection to the API, then request one order, each step within `within` seconds."""
    ways = [await _way(host, files, what, within) for host, files, what in _hosts(subject.endpoint)]
    found = [*_encryption(subject.endpoint), *ways]
    if any(finding.level is Level.ERROR for finding in ways):
        return found
    order_id = subject.order_id or await known_order()
    async with subject.open_api() as api:
        if order_id is None:
            return [*found, await _credential(api, subject.endpoint, within)]
        found += await _order(api, order_id, subject, within)
        return [*found, *(_OF.warning(notice, _NOTICE) for notice in api.notices)]


def _hosts(endpoint: Endpoint) -> list[tuple[Host, TlsFiles, str]]:
    """Return the hosts that requests connect to. A proxy, if any, takes the place of its target."""
    tls, oauth2 = endpoint.access.tls, endpoint.access.oauth2
    way = (endpoint.proxy, endpoint.url, "the external API")
    ways = [way] if oauth2 is None else [way, (oauth2.proxy, oauth2.url, "the authorization server")]
    return [
        (Host.of(proxy), TlsFiles(), f"the proxy to {what}") if proxy else (Host.of(url), tls, what)
        for proxy, url, what in ways
    ]


def _encryption(endpoint: Endpoint) -> list[Finding]:
    sent = [("the credential", endpoint.url, "INGEST_UPSTREAM_URL")] if _has_credential(endpoint) else []
    if (oauth2 := endpoint.access.oauth2) is not None:
        sent.append(("the client secret", oauth2.url, "INGEST_UPSTREAM_OAUTH2_URL"))
    return [
        _OF.warning(f"{what} is sent to {host} unencrypted", f"use https:// in {setting}, if the server supports it")
        for what, url, setting in sent
        if not (host := Host.of(url)).is_tls and not _is_local(host.name)
    ]


def _has_credential(endpoint: Endpoint) -> bool:
    parts, headers = urlsplit(endpoint.url), endpoint.access.secrets.get("headers")
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    names += parse_headers(headers.value) if headers is not None else []
    return endpoint.access.kind != "none" or "@" in parts.netloc or any(map(_CREDENTIAL_NAME.search, names))


def _is_local(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


async def _way(host: Host, files: TlsFiles, what: str, within: float) -> Finding:
    try:
        reached = await reach(host, files, within)
    except Unreachable as error:
        problem, advice = _PROBLEMS[error.step]
        return _OF.error(f"{what}: {problem.format(host)}: {error}", advice)
    return _certificate(host, what, reached)


def _certificate(host: Host, what: str, reached: Reached) -> Finding:
    response = f"{what}: {host} responds in {reached.seconds * 1000:.0f} ms"
    if reached.expires_at is None:
        return _OF.ok(response)
    left = reached.expires_at - time.time()
    expiry = f"its certificate expires in {left / 86_400:.0f} days"
    if left < _EXPIRES_SOON:
        return _OF.warning(f"{response}, but {expiry}", "its operator must renew it in time")
    return _OF.ok(f"{response} by {reached.tls}, {expiry}")


async def _credential(api: Api, endpoint: Endpoint, within: float) -> Finding:
    try:
        async with asyncio.timeout(within):
            await api.authenticate()
    except Fault as fault:
        return _of_fault(fault, "no order")
    except TimeoutError:
        return _late("a token was not obtained within", within)
    credential = "a token was obtained" if endpoint.access.oauth2 else "the credential was not tried"
    return _OF.ok(f"no order to request is known, {credential}. Use --order-id")


async def _order(api: Api, order_id: str, subject: UpstreamSubject, within: float) -> list[Finding]:
    request, started = FetchRequest(order_id), time.monotonic()
    try:
        async with asyncio.timeout(within):
            body = await api.fetch(request)
    except Fault as fault:
        return [_of_fault(fault, f"order {order_id}")]
    except TimeoutError:
        return [_late(f"order {order_id}: no response for", within)]
    return [
        _latency(order_id, time.monotonic() - started, subject),
        await _document(api, body, request, has_mapping=subject.has_mapping),
    ]


def _late(what: str, within: float) -> Finding:
    return _OF.error(f"{what} {within:g} s", "ask the API's operator. If it is only slow, use a longer --timeout")


def _latency(order_id: str, seconds: float, subject: UpstreamSubject) -> Finding:
    if seconds > subject.timeout / 2:
        return _OF.warning(
            f"order {order_id} took {seconds:.1f} s, over half of INGEST_UPSTREAM_TIMEOUT ({subject.timeout:g} s)",
            "set INGEST_UPSTREAM_TIMEOUT to two or three times the slowest acceptable response",
        )
    accepted = "" if subject.endpoint.access.kind == "none" else ", and the credential is accepted"
    return _OF.ok(f"order {order_id} took {seconds * 1000:.0f} ms, with a new connection{accepted}")


async def _document(api: Api, body: bytes, request: FetchRequest, *, has_mapping: bool) -> Finding:
    try:
        await api.decode(body, request)
    except SkippedDocument:
        return _OF.ok(f"the shop does not count {request.order_id} as an order, and its document is skipped")
    except InvalidDocument as error:
        advice = "correct the mapping (INGEST_MAPPING)" if has_mapping else "set a mapping (INGEST_MAPPING)"
        return _OF.error(
            f"the document of order {request.order_id} does not fit: {error}",
            f"{advice}. Try one with `ingest mapping check --id {shlex.quote(request.order_id)} --mapping FILE`",
        )
    return _OF.ok(f"the document of order {request.order_id} fits ({len(body):,} bytes)")


def _of_fault(fault: Fault, order: str) -> Finding:
    match fault:
        case TokenFault() | TokenRefused():
            return _OF.error(f"no access token: {fault}", "check the INGEST_UPSTREAM_OAUTH2_… settings")
        case CredentialFault():
            return _OF.error(f"{order}: {fault}", _CREDENTIAL)
        case ThrottledFault():
            return _OF.warning(
                f"{order}: the API throttles: {fault}", "check again later, and see INGEST_UPSTREAM_RATE"
            )
        case PostponedFault():
            return _OF.ok(f"{order}: {fault}, which means not ready yet by the configuration")
        case PermanentFault(reason=DeadReason.NOT_FOUND):
            return _OF.warning(
                f"{order} is unknown to the API: {fault}",
                "name an order that exists, or check INGEST_UPSTREAM_URL",
            )
        case PermanentFault():
            return _OF.error(
                f"{order} would be dead-lettered: {fault}",
                "check INGEST_UPSTREAM_URL and the other settings of the request, or INGEST_UPSTREAM_STATUS or INGEST_RESPONSES if the response means something else",
            )
        case _ if str(fault) == INVALID_HTTP:
            return _OF.error(
                f"{order}: {fault}", "ask the API's operator. INGEST_UPSTREAM_CLIENT=aiohttp accepts more forms of HTTP"
            )
        case _:
            return _OF.error(f"{order}: {fault}", "ask the API's operator. Workers wait until it responds")
