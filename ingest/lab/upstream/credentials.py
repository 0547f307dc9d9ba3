"""Checks credentials: a bearer token, a user and password, a key in a header, or a token of the authorization server.

The authorization server is part of the simulated API. `POST /token` issues tokens with the configured lifetime to the
configured client, and can fail in the typical ways of such a server.
"""

import base64
import secrets
import time
from http import HTTPStatus
from urllib.parse import parse_qs, unquote

import msgspec

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.responses import RESET, Response, problem, response, uncounted

TOKEN = b"/token"
"""The path of the authorization server."""

_AUTHORIZATION = b"authorization"
_NEVER = 3600.0
_HANGS = 1.0


class Authority:
    """The authorization server.

    Attributes:
        requests: number of requests for tokens.
        peak: maximum number of concurrent requests for tokens. A request that hangs counts for one second.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self._tokens: dict[bytes, float] = {}
        self._running: list[float] = []
        self.requests = 0
        self.peak = 0
        self.behave(behaviour)

    def behave(self, behaviour: Behaviour) -> None:
        """Use this behaviour from the next request on. Issued tokens keep their lifetime."""
        self._behaviour = behaviour

    def accepts(self, authorization: bytes | None) -> bool:
        """Return whether a request has an issued token that has not expired."""
        return self._tokens.get((authorization or b"").removeprefix(b"Bearer "), 0.0) > time.monotonic()

    def revoke(self) -> None:
        """Invalidate all issued tokens."""
        self._tokens.clear()

    def reset(self) -> None:
        """Reset the counts."""
        self._running = []
        self.requests = self.peak = 0

    def response(self, authorization: bytes | None, body: bytes) -> tuple[Response, float]:
        """Return the response to a request for a token, and the seconds to wait before it is sent."""
        now, behaviour = time.monotonic(), self._behaviour
        latency = _NEVER if behaviour.authority_down == "hang" else behaviour.token_latency
        self.requests += 1
        self._running = [end for end in self._running if end > now]
        self._running.append(now + min(latency, _HANGS))
        self.peak = max(self.peak, len(self._running))
        return self._response(authorization, body, now), latency

    def _response(self, authorization: bytes | None, body: bytes, now: float) -> Response:
        match self._behaviour.authority_down:
            case "reset":
                return uncounted(RESET)
            case "503" | "hang":
                return uncounted(problem(HTTPStatus.SERVICE_UNAVAILABLE, "a configured outage"))
            case "401":
                return _error(HTTPStatus.UNAUTHORIZED, "invalid_client")
            case None:
                pass
        form = {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}
        if form.get("grant_type") != "client_credentials":
            return _error(HTTPStatus.BAD_REQUEST, "unsupported_grant_type")
        if self._behaviour.client is None or _client_of(authorization, form) != self._behaviour.client:
            return _error(HTTPStatus.UNAUTHORIZED, "invalid_client")
        return uncounted(self._issue(now))

    def _issue(self, now: float) -> Response:
        token, lifetime = secrets.token_urlsafe(16), self._behaviour.token_lifetime
        self._tokens = {issued: end for issued, end in self._tokens.items() if end > now}
        # The lifetime begins when the token is sent.
        self._tokens[token.encode()] = now + self._behaviour.token_latency + lifetime
        body = {"access_token": token, "token_type": "Bearer", "expires_in": lifetime}
        return response(HTTPStatus.OK, msgspec.json.encode(body), Cache_Control="no-store")


class Credentials:
    """The credential that requests for orders need.

    Attributes:
        header: the lower-case name of the header with the credential.
    """

    def __init__(self, behaviour: Behaviour, authority: Authority) -> None:
        self._authority = authority if behaviour.client is not None else None
        self.header = _AUTHORIZATION
        self._wanted: bytes | None = None
        if behaviour.token is not None:
            self._wanted = f"Bearer {behaviour.token}".encode()
        elif behaviour.basic is not None:
            self._wanted = b"Basic " + base64.b64encode(behaviour.basic.encode())
        elif behaviour.key is not None:
            name, _, value = behaviour.key.partition(":")
            self.header, self._wanted = name.strip().lower().encode(), value.strip().encode()
        self.is_needed = self._wanted is not None or self._authority is not None

    def accepts(self, given: bytes | None) -> bool:
        """Return whether a request with this value in the header is accepted."""
        if self._wanted is not None:
            return given == self._wanted
        return self._authority is None or self._authority.accepts(given)


def _client_of(authorization: bytes | None, form: dict[str, str]) -> str:
    """Return `ID:SECRET` from the header or the form of a request for a token."""
    scheme, _, encoded = (authorization or b"").partition(b" ")
    if scheme == b"Basic":
        try:
            return ":".join(unquote(part) for part in base64.b64decode(encoded).decode().split(":", 1))
        except ValueError:
            return ""
    return f"{form.get('client_id', '')}:{form.get('client_secret', '')}"


def _error(status: int, error: str) -> Response:
    return uncounted(response(status, msgspec.json.encode({"error": error})))
