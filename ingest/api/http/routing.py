"""A route consists of a method, a path, the required scope, and the function that responds."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from ingest.api.documentation.documentation import Documentation
from ingest.domain.api_key import Scope


def _always(scope: Scope) -> None:
    """The caller may continue."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: of the key, for audit and metrics. It is `anonymous` if the API runs open.
        scopes: the permitted operations.
        headers: of every response to this request, such as the headers of a rate limit.
        check: raises `Problem` if the caller has lost a scope, for a request that takes long.
    """

    name: str
    scopes: frozenset[Scope]
    headers: tuple[tuple[str, str], ...] = ()
    check: Callable[[Scope], None] = field(default=_always, compare=False)


Respond = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]
"""Responds to one request of a caller, or raises `Problem` for an error."""


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API.

    Attributes:
        method: of HTTP, upper case.
        path: as aiohttp writes it, such as `/v1/orders/{order_id}`.
        scope: the scope that a key needs, or None for routes that need no key.
        handler: responds.
        documentation: its part of the OpenAPI document.
    """

    method: str
    path: str
    scope: Scope | None
    handler: Respond
    documentation: Documentation
