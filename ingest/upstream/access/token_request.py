"""Requests access tokens from an authorization server by OAuth 2.0 (RFC 6749): for client credentials, or for a refresh token."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from ingest.domain.errors import Fault, TokenFault, TokenRefused
from ingest.domain.fetch.request_headers import check_token
from ingest.upstream.access.endpoint import OAuth2, basic_of_client
from ingest.upstream.http.replacement import ReplaceableTransport
from ingest.upstream.http.transport import NoDocument, NoResponse, TooLarge
from ingest.upstream.responses import api_time, retry_after

_HEADERS = {
    "Accept": "application/json",
    "User-Agent": "order-ingest",
    "Content-Type": "application/x-www-form-urlencoded",
}
# The types of bearer tokens, in lower case. eBay sends the last two.
_BEARER = ("bearer", "user access token", "application access token")
_INVALID_GRANT = "invalid_grant"
_ERROR_CODES = {
    _INVALID_GRANT,
    "invalid_client",
    "invalid_request",
    "invalid_scope",
    "unauthorized_client",
    "unsupported_grant_type",
}
_LONGEST_LIFETIME = 86_400.0
_SHORTEST_LIFETIME = 1.0
# No common server accepts a header this long. A server that rejects it would reject each order.
_LONGEST_TOKEN = 64 * 1024


@dataclass(frozen=True, slots=True)
class Token:
    """An access token.

    Attributes:
        lifetime: seconds that are left, or None if the server did not send it.
        refresh_token: for the next request, if the server sent one.
        age: seconds since it was requested, if another process has requested it.
    """

    value: str = field(repr=False)
    lifetime: float | None
    refresh_token: str | None = field(default=None, repr=False)
    age: float = 0.0


class NoToken(Exception):
    """There is no token for now.

    Attributes:
        after: seconds to wait, if the server requested it.
        is_declined: whether the server does not accept the refresh token, so that a request with another one may help.
    """

    def __init__(
        self,
        error: str,
        fault: type[TokenFault] | type[TokenRefused] = TokenFault,
        after: float | None = None,
        *,
        is_declined: bool = False,
    ) -> None:
        super().__init__(error)
        self._fault = fault
        self.after = after
        self.is_declined = is_declined

    def fault(self) -> Fault:
        """Return the fault of an order. Each order needs its own instance."""
        return self._fault(str(self))


class Authority:
    """An authorization server.

    Args:
        transport: sends the requests. Redirects are not followed: the client's secret goes nowhere else.
        secrets: returns the current values of `client_id`, and of `client_secret` and `parameters`, if there are any.
        now: the clock, for a server that sends a time to wait for without its own time.
    """

    def __init__(
        self,
        transport: ReplaceableTransport,
        options: OAuth2,
        secrets: Callable[[], Mapping[str, str]],
        now: Callable[[], datetime],
    ) -> None:
        self._transport = transport
        self._options = options
        self._secrets = secrets
        self._now = now

    async def token(self, refresh_token: str | None = None) -> Token:
        """Request a token, for the refresh token if the grant needs one.

        Raises:
            NoToken: there is none.
        """
        headers, body = self._request(refresh_token)
        send = self._transport.send
        try:
            return _token_of(await send(self._options.url, headers, "POST", body))
        except NoDocument as response:
            raise _declined(response, self._now()) from None
        except NoResponse as reason:
            raise _unavailable(str(reason)) from reason
        except TooLarge:
            raise _unavailable("its response is too large") from None
        except ValueError as error:
            raise _unavailable(str(error)) from None
        except Exception as bug:  # as for any other request: the transport has failed
            await self._transport.replace(send, bug)
            raise _unavailable(f"our HTTP client failed: {type(bug).__name__}") from bug

    def _request(self, refresh_token: str | None) -> tuple[Mapping[str, str], bytes]:
        options, secrets = self._options, self._secrets()
        form: list[tuple[str, str]] = [("grant_type", options.grant)]
        if refresh_token is not None:
            form.append(("refresh_token", refresh_token))
        if options.scope:
            form.append(("scope", options.scope))
        form += parse_qsl(secrets.get("parameters", ""), keep_blank_values=True)
        client = {role: secrets[role] for role in ("client_id", "client_secret") if role in secrets}
        if options.client_auth == "body" or "client_secret" not in client:
            return _HEADERS, urlencode([*form, *client.items()]).encode()
        return {**_HEADERS, **basic_of_client(*client.values())}, urlencode(form).encode()


def _declined(response: NoDocument, now: datetime) -> NoToken:
    status = response.status
    if 300 <= status < 400:
        return _unavailable(f"HTTP {status}: redirects are not followed")
    if status in {408, 421, 425, 429} or status >= 500:
        after = retry_after(response.headers.get("Retry-After"), api_time(response.headers, now))
        return _unavailable(f"HTTP {status}", after)
    error = f"the authorization server does not issue a token: HTTP {status}"
    code = _error_code(response.body)
    is_declined = code == _INVALID_GRANT if code else status in {400, 401, 403}
    return NoToken(f"{error} {code}" if code else error, TokenRefused, is_declined=is_declined)


def _error_code(body: bytes) -> str | None:
    """Return the error of a response (RFC 6749, section 5.2), or None. Any other text is not shown."""
    try:
        response: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    code = response.get("error") if isinstance(response, dict) else None
    return code if isinstance(code, str) and code in _ERROR_CODES else None


def _unavailable(error: str, after: float | None = None) -> NoToken:
    return NoToken(f"no token from the authorization server: {error}", after=after)


def _token_of(body: bytes) -> Token:
    """Read a successful response (RFC 6749, section 5.1). Lifetimes are at least a second, and at most a day.

    Raises:
        ValueError: there is no usable token. The message does not quote the response.
    """
    try:
        response: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise ValueError("the response is not JSON") from None
    match response:
        case {"access_token": str(value)}:
            kind = response.get("token_type", "bearer")
        case _:
            raise ValueError("the response has no access_token")
    if not str(kind).lower().startswith(_BEARER):
        raise ValueError("the token_type is not Bearer")
    if len(value) > _LONGEST_TOKEN:
        raise ValueError(f"the access_token is longer than {_LONGEST_TOKEN:,} characters")
    try:
        token = check_token(value)
    except ValueError:
        raise ValueError("the access_token cannot be sent in a header") from None
    refresh = response.get("refresh_token")
    return Token(
        token, _lifetime(response.get("expires_in")), refresh if isinstance(refresh, str) and refresh else None
    )


def _lifetime(given: object) -> float | None:
    """Some servers send the number as a string."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        seconds = float(given)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(seconds) else min(max(seconds, _SHORTEST_LIFETIME), _LONGEST_LIFETIME)
