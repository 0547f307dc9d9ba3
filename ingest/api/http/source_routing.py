"""Gives the routes of each source their paths.

The routes of a source do not depend on its name, and are built for each source alike, with the paths `/v1/…`. Named sources are
reached by `/v1/sources/{source}/…`, and the only source also by `/v1/…`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from aiohttp import web

from ingest.api.documentation.documentation import Documentation, Parameter
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller, Respond, Route
from ingest.domain.source_name import UNNAMED

_VERSION = "/v1"
_PREFIX = f"{_VERSION}/sources/{{source}}"
_SOURCE = Parameter(
    "source", "path", "The source's name.", {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,31}$"}, is_required=True
)


def routes_of_sources(routes: Mapping[str, Sequence[Route]]) -> list[Route]:
    """Return the routes of all sources. With several sources, the paths `/v1/…` belong to none, see `ambiguous_routes`.

    Args:
        routes: The routes of each source, by its name. All sources have the same routes in the same order.
    """
    named = [] if UNNAMED in routes else [_by_name(routes, each) for each in zip(*routes.values(), strict=True)]
    return [*_of_only(routes), *named]


def ambiguous_routes(routes: Mapping[str, Sequence[Route]]) -> list[Route]:
    """Return routes for `/v1/…` that name the paths to use instead, if there are several sources."""
    if len(routes) == 1:
        return []
    return [replace(route, handler=_ambiguous(routes.keys(), route.path)) for route in next(iter(routes.values()))]


def _of_only(routes: Mapping[str, Sequence[Route]]) -> list[Route]:
    if len(routes) > 1:
        return []
    ((name, only),) = routes.items()
    return [replace(route, source=lambda _: name) for route in only]


def _by_name(routes: Mapping[str, Sequence[Route]], alike: Sequence[Route]) -> Route:
    """Return the route that stands for the same route of all sources."""
    handlers = {name: route.handler for name, route in zip(routes, alike, strict=True)}

    async def respond(request: web.Request, caller: Caller) -> web.StreamResponse:
        handler = handlers.get(_named(request))
        if handler is None:
            permitted = _permitted(handlers, caller)
            detail = f"there is no such source: use one of {', '.join(permitted)}"
            raise Problem(404, "unknown_source", detail, sources=permitted)
        return await handler(request, caller)

    first = alike[0]
    path = _PREFIX + first.path.removeprefix(_VERSION)
    return replace(first, path=path, handler=respond, documentation=_named_source(first.documentation), source=_named)


def _named(request: web.Request) -> str:
    return request.match_info["source"]


def _named_source(documentation: Documentation) -> Documentation:
    problems = {**documentation.problems, 404: "There is no such source (`unknown_source`)."}
    return replace(documentation, parameters=[_SOURCE, *documentation.parameters], problems=problems)


def _ambiguous(names: Collection[str], path: str) -> Respond:
    instead = _PREFIX + path.removeprefix(_VERSION)

    async def respond(_: web.Request, caller: Caller) -> web.StreamResponse:
        permitted = _permitted(names, caller)
        detail = f"there are several sources: use {instead} with one of {', '.join(permitted)}"
        raise Problem(409, "several_sources", detail, sources=permitted)

    return respond


def _permitted(names: Collection[str], caller: Caller) -> list[str]:
    """Return the names of the sources that the caller may use."""
    return [name for name in sorted(names) if caller.may_use(name)]
