"""The OpenAPI 3.1 document, generated from the routes, and the route that serves it."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from aiohttp import web

from ingest.api.documentation.documentation import Documentation, DocumentedResponse, Parameter
from ingest.api.http.problems import CONTENT_TYPE
from ingest.api.http.routing import Caller, Route

_REF = "#/components/schemas/{name}"
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "The problem, in the form of RFC 9457. `code` names the kind of problem for programs.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
}
# What any request may be answered.
_ANY = {
    400: "The request cannot be read.",
    408: "The request did not come in time.",
    413: "The body is too large.",
    417: "The request expects something else than `100-continue`.",
    431: "The header is too large.",
    500: "An unexpected error. It was logged under the response's `X-Request-Id`.",
    503: "Too busy, or a required server is unavailable. `Retry-After` gives the time to wait.",
}
_WITH_KEY = {
    401: "There is no valid API key.",
    403: "The API key lacks the scope.",
    429: "The API key's rate limit is reached, or the queue is full. `Retry-After` gives the time to wait.",
}
_REQUEST_ID: dict[str, Any] = {
    "X-Request-Id": {"description": "Names the request in the log.", "schema": {"type": "string"}}
}
_RETRY_AFTER: dict[str, Any] = {
    "Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}
}
_CHALLENGE: dict[str, Any] = {
    "WWW-Authenticate": {"description": "The missing credential (RFC 6750).", "schema": {"type": "string"}}
}
# Of keys that have a limit.
_RATE_LIMIT: dict[str, Any] = {
    "RateLimit": {"description": "The rest of the key's rate limit.", "schema": {"type": "string"}},
    "RateLimit-Policy": {"description": "The key's rate limit.", "schema": {"type": "string"}},
}
_FURTHER: Mapping[int, dict[str, Any]] = {
    401: _CHALLENGE,
    403: _CHALLENGE,
    409: _RETRY_AFTER,
    429: _RETRY_AFTER | _RATE_LIMIT,
    503: _RETRY_AFTER,
}


class OpenApi:
    """`/openapi.json`.

    Args:
        routes: of the API, without this one.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        route = Route("GET", "/openapi.json", None, self.describe, DESCRIPTION)
        self._routes = [route]
        self._body = msgspec.json.encode(document_of([*routes, route]))

    def routes(self) -> Sequence[Route]:
        """The route."""
        return self._routes

    async def describe(self, request: web.Request, caller: Caller) -> web.Response:
        """Return the document."""
        del request, caller
        return web.Response(body=self._body, content_type="application/json")


DESCRIPTION = Documentation(
    summary="This document",
    answers={200: DocumentedResponse("The OpenAPI document.", {"type": "object", "required": ["openapi", "paths"]})},
)


def document_of(routes: Sequence[Route]) -> dict[str, Any]:
    """The document, without routes that are not documented."""
    documented = [(route, route.documentation) for route in routes if route.documentation is not None]
    types = _types(documentation for _, documentation in documented)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route, documentation in documented:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, documentation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "order-ingest",
            "version": version("order-ingest"),
            "description": "Enqueues orders, and shows their state.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "responses": {f"Problem{status}": _problem(status, text) for status, text in {**_ANY, **_WITH_KEY}.items()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer KEY`"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _types(documented: Iterable[Documentation]) -> list[type]:
    """The types whose schemas are needed, each once."""
    used: dict[type, None] = {}
    for documentation in documented:
        for content in (*documentation.bodies.values(), *(answer.content for answer in documentation.answers.values())):
            if isinstance(content, type):
                used[content] = None
    return list(used)


def _operation(route: Route, documentation: Documentation, schema_of: Mapping[type, Any]) -> dict[str, Any]:
    def schema(content: Any) -> Any:
        return schema_of[content] if isinstance(content, type) else dict(content)

    answers = {
        str(status): {
            "description": answer.text,
            "headers": _REQUEST_ID if route.scope is None else _REQUEST_ID | _RATE_LIMIT,
            **({} if answer.content is None else {"content": {answer.media_type: {"schema": schema(answer.content)}}}),
        }
        for status, answer in documentation.answers.items()
    }
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": documentation.summary,
        **({"description": documentation.text} if documentation.text else {}),
        "parameters": [_parameter(parameter) for parameter in documentation.parameters],
        "responses": answers | _problems(route, documentation),
    }
    if documentation.bodies:
        content = {media_type: {"schema": schema(body)} for media_type, body in documentation.bodies.items()}
        operation["requestBody"] = {"required": True, "content": content}
    if route.scope is not None:
        # In OpenAPI 3.1 any scheme may name the scope that the caller needs.
        operation["security"] = [{"bearer": [route.scope.value]}, {"header": [route.scope.value]}]
    return operation


def _problems(route: Route, documentation: Documentation) -> dict[str, Any]:
    common = {**_ANY, **(_WITH_KEY if route.scope is not None else {})}
    problems: dict[str, Any] = {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in common}
    problems |= {str(status): _problem(status, text) for status, text in documentation.problems.items()}
    return dict(sorted(problems.items()))


def _problem(status: int, text: str) -> dict[str, Any]:
    return {
        "description": text,
        "headers": _REQUEST_ID | _FURTHER.get(status, {}),
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.text,
        "required": parameter.is_required,
        "schema": dict(parameter.schema),
    }


def _name(route: Route) -> str:
    """A name for programs, such as `get_v1_orders_order_id`."""
    parts = [part.strip("{}").replace("-", "_").replace(".", "_") for part in route.path.split("/") if part]
    return "_".join([route.method.lower(), *parts])
