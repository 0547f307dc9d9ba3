"""An authorization server that replaces refresh tokens with each use, and an API that accepts its access tokens.

Real servers differ in how long a used refresh token stays valid, see `Reuse`. The server of this module applies one of these rules strictly, so
that a client that loses a token is locked out.
"""

import asyncio
import itertools
import json
import os
import signal
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import parse_qs

import psutil
from listener import listening


class Reuse(Enum):
    """How long a refresh token stays valid after it was used."""

    NEVER = "never"  # Auth0, Curity and others by default
    GRACE = "for some seconds"  # Okta (30 s by default), Cognito, Hydra
    UNTIL_REPLACEMENT_IS_USED = "until the new refresh token is used"  # Shopify since August 2026
    UNTIL_ACCESS_TOKEN_IS_USED = "until the new access token is used"


@dataclass
class Grant:
    """A refresh token, which was issued for another one, its parent."""

    parent: str | None = None
    used_at: float | None = None
    is_retired: bool = False


def _is_alive(pid: int) -> bool:
    """Return whether a process has not been killed. Requests without a process ID come from this process."""
    try:
        return not pid or psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class RotatingAuthority:
    """The state of the servers.

    Attributes:
        reuse: the rule.
        lifetime: seconds of an access token.
        grace: seconds for `Reuse.GRACE`. A later use revokes everything, as servers do that detect stolen tokens.
        rotations: refresh tokens that were used for the first time.
        repeated: refresh tokens that were used again, and accepted.
        declined: requests with a refresh token that is not valid.
        orders: requests that the API has accepted.
        peak: most concurrent requests for tokens by living processes.
        kills: process IDs that are killed when the server has committed their next request, before it sends the response.
    """

    reuse: Reuse
    lifetime: float = 1.0
    grace: float = 30.0  # Okta's, and docs/connect/credentials.md recommends at least this
    url: str = ""
    rotations: int = 0
    repeated: int = 0
    declined: int = 0
    orders: int = 0
    peak: int = 0
    kills: set[int] = field(default_factory=set)
    latency: float = 0.0
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _grants: dict[str, Grant] = field(default_factory=lambda: {"seed": Grant()})
    _access: dict[str, tuple[float, str]] = field(default_factory=dict)
    _running: list[int] = field(default_factory=list)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve a connection."""
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *pairs = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (pair.partition(":") for pair in pairs)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            status, answer = await self._answer(line, headers, parse_qs(body.decode()))
            content = json.dumps(answer).encode()
            writer.write(
                f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode()
                + content
            )

    async def _answer(self, line: str, headers: dict[str, str], form: dict[str, list[str]]) -> tuple[int, object]:
        if not line.startswith("POST"):
            return self._order(line, headers.get("authorization", "").removeprefix("Bearer "))
        pid = int(form.get("pid", ["0"])[0])
        self._running.append(pid)
        self.peak = max(self.peak, sum(map(_is_alive, self._running)))
        await asyncio.sleep(self.latency)
        self._running.remove(pid)
        status, answer = self._token(form["refresh_token"][0])
        if pid in self.kills:
            self.kills.discard(pid)
            os.kill(pid, signal.SIGKILL)
        return status, answer

    def _order(self, line: str, token: str) -> tuple[int, object]:
        end, refresh = self._access.get(token, (0.0, ""))
        if time.monotonic() > end:
            return 401, {"error": "the access token is not valid"}
        if self.reuse is Reuse.UNTIL_ACCESS_TOKEN_IS_USED and refresh in self._grants:
            self._retire_before(refresh)
        self.orders += 1
        order_id = line.split()[1].rpartition("/")[2]
        return 200, {
            "id": order_id,
            "status": "placed",
            "placed_at": "2026-01-01T00:00:00Z",
            "currency": "EUR",
            "lines": [{"sku": "a", "quantity": 1, "unit_price": "1"}],
        }

    def _token(self, refresh_token: str) -> tuple[int, object]:
        grant, now = self._grants.get(refresh_token), time.monotonic()
        if grant is None or not self._is_valid(grant, now):
            self.declined += 1
            return 400, {"error": "invalid_grant"}
        if self.reuse is Reuse.UNTIL_REPLACEMENT_IS_USED:
            self._retire_before(refresh_token)
        if grant.used_at is None:
            grant.used_at = now
            self.rotations += 1
        else:
            self.repeated += 1
        number = next(self._numbers)
        new = f"refresh-{number}"
        self._grants[new] = Grant(refresh_token)
        self._access[f"access-{number}"] = (now + self.lifetime, new)
        return 200, {
            "access_token": f"access-{number}",
            "token_type": "bearer",
            "expires_in": self.lifetime,
            "refresh_token": new,
        }

    def _is_valid(self, grant: Grant, now: float) -> bool:
        if grant.used_at is None or grant.is_retired:
            return not grant.is_retired
        match self.reuse:
            case Reuse.NEVER:
                return False
            case Reuse.GRACE:
                if now > grant.used_at + self.grace:
                    self._grants.clear()
                    return False
                return True
            case _:
                return True

    def _retire_before(self, refresh_token: str) -> None:
        """Neither the token that this one was issued for, nor the others that were issued for that, are valid any more."""
        parent = self._grants[refresh_token].parent
        for token, grant in self._grants.items():
            if parent is not None and token != refresh_token and parent in (token, grant.parent):
                grant.is_retired = True


@asynccontextmanager
async def rotating_authority(reuse: Reuse, **options: float) -> AsyncIterator[RotatingAuthority]:
    """The servers, on a free port. The first refresh token is `seed`."""
    authority = RotatingAuthority(reuse, **options)
    async with listening(authority.serve) as port:
        authority.url = f"http://127.0.0.1:{port}"
        yield authority
