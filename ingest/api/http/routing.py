"""What a route is: a method and a path, who may call it, and the function that answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from ingest.api.documentation.documentation import Documentation
from ingest.domain.api_key import Scope

__all__ = ["Caller", "Respond", "Route", "Scope"]


def _always(scope: Scope) -> None:
    """The caller may go on."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: of the key, for audit and metrics; `anonymous` if the API runs open.
        scopes: what the caller may do.
        headers: of every answer to this request, such as those of a rate limit.
        check: raises `Problem` if the caller does not have a scope any more: for a request that takes long.
    """

    name: str
    scopes: frozenset[Scope]
    headers: tuple[tuple[str, str], ...] = ()
    check: Callable[[Scope], None] = field(default=_always, compare=False)


Respond = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]
"""Responds to one request of a caller; raises `Problem` for each error."""


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API.

    Attributes:
        method: of HTTP, upper case.
        path: as aiohttp writes it, such as `/v1/orders/{order_id}`.
        scope: what a key needs; None for routes that need no key.
        handler: answers.
        documentation: what the OpenAPI document says of it; every route has one.
    """

    method: str
    path: str
    scope: Scope | None
    handler: Respond
    documentation: Documentation | None = None
