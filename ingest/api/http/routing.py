"""A route consists of a method, a path, the required scope, its source, and the function that responds."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from aiohttp import web

from ingest.api.documentation.documentation import Documentation
from ingest.domain.api_key import Scope
from ingest.operations.declared import DECLARED, Declaration
from ingest.operations.visibility import Visibility


def _always(scope: Scope) -> None:
    """The caller may continue."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: The name of the key, for audit and metrics. It is `anonymous` if the API runs open.
        scopes: The permitted operations.
        headers: The headers of every response to this request, such as the headers of a rate limit.
        check: Raises `Problem` if the caller has lost a scope or the source, for a request that takes long.
        sources: The permitted sources, or None for all.
        key_id: The ID of the API key, or empty without one.
    """

    name: str
    scopes: frozenset[Scope]
    headers: tuple[tuple[str, str], ...] = ()
    check: Callable[[Scope], None] = field(default=_always, compare=False)
    sources: frozenset[str] | None = None
    key_id: str = ""

    @property
    def sees(self) -> Visibility:
        """The values and names that responses to the caller contain."""
        return Visibility(Scope.PERSONAL in self.scopes, self.sources)

    def require(self, scopes: Iterable[Scope]) -> None:
        """Check that the caller has these scopes. Raises `Problem` otherwise."""
        for scope in scopes:
            self.check(scope)

    def may_use(self, source: str) -> bool:
        """Whether the caller may use a source."""
        return self.sources is None or source in self.sources


Respond = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]
"""Responds to one request of a caller, or raises `Problem` or the error of an operation, see `as_problems`."""

SourceOf = Callable[[web.Request], str | None]
"""Returns the name of the source that a request is for, or None."""


def _of_no_source(_: web.Request) -> None:
    """The source of a route that belongs to none."""


_UNDOCUMENTED = Documentation(schema=None)


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API.

    Attributes:
        method: The HTTP method in upper case.
        path: The path in the syntax of aiohttp, such as `/v1/orders/{order_id}`.
        operation: The name of its declaration, or None for routes that need no key.
        handler: Responds.
        documentation: Its part of the OpenAPI document. The console has none.
        source: Returns the source of a request. A key that is limited to other sources is rejected.
        is_large: Whether the response contains a document, so that its request waits for memory.
    """

    method: str
    path: str
    operation: str | None
    handler: Respond
    documentation: Documentation = _UNDOCUMENTED
    source: SourceOf = _of_no_source
    is_large: bool = False

    @property
    def declared(self) -> Declaration | None:
        """The declaration of its operation."""
        return None if self.operation is None else DECLARED[self.operation]

    @property
    def scope(self) -> Scope | None:
        """The scope that a key needs, or None for routes that need no key."""
        return None if self.declared is None else self.declared.scope
