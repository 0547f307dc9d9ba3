"""Requests access tokens from an authorization server: OAuth 2.0 client credentials (RFC 6749, section 4.4)."""

from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import parse_qsl, urlencode

from ingest.domain.errors import Fault, TokenFault, TokenRefused
from ingest.upstream.access.credential import basic_of_client
from ingest.upstream.access.endpoint import OAuth2
from ingest.upstream.access.token import Token, read_token
from ingest.upstream.http.replacement import ReplaceableTransport
from ingest.upstream.http.transport import NoDocument, NoResponse, TooLarge
from ingest.upstream.responses import api_time, retry_after

_HEADERS = {
    "Accept": "application/json",
    "User-Agent": "order-ingest",
    "Content-Type": "application/x-www-form-urlencoded",
}


class NoToken(Exception):
    """There is no token for now.

    Attributes:
        fault: raises it for an order. Each order needs its own instance.
        after: seconds to wait, if the server requested it.
    """

    def __init__(self, fault: Callable[[], Fault], after: float | None = None) -> None:
        super().__init__(str(fault()))
        self.fault = fault
        self.after = after


class Authority:
    """An authorization server.

    Args:
        transport: sends the requests. Redirects are not followed: the client's secret goes nowhere else.
        options: the parameters of the request.
        secrets: returns the current values of `client_id` and `client_secret`, and of `parameters`, if there are any.
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

    async def token(self) -> Token:
        """Request a token.

        Raises:
            NoToken: there is none.
        """
        headers, body = self._request()
        send = self._transport.send
        try:
            return read_token(await send(self._options.url, headers, "POST", body))
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

    def _request(self) -> tuple[Mapping[str, str], bytes]:
        options, secrets = self._options, self._secrets()
        client = {"client_id": secrets["client_id"], "client_secret": secrets["client_secret"]}
        form = [("grant_type", "client_credentials"), *([("scope", options.scope)] if options.scope else [])]
        form += parse_qsl(secrets.get("parameters", ""), keep_blank_values=True)
        if options.client_auth == "body":
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
    return NoToken(lambda: TokenRefused(error))


def _unavailable(error: str, after: float | None = None) -> NoToken:
    return NoToken(lambda: TokenFault(f"no token from the authorization server: {error}"), after)
