"""The OpenAPI 3.1 document, generated from the routes, and the route that serves it."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from aiohttp import web

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter, object_schema
from ingest.api.http.json_responses import JSON
from ingest.api.http.problems import CONTENT_TYPE
from ingest.api.http.routing import Caller, Route
from ingest.operations.declared import STATUS_OF

_REF = "#/components/schemas/{name}"
_PROBLEM = {
    "description": "The problem, in the form of RFC 9457. `code` names the kind of problem for programs.",
    **object_schema(
        "type",
        "title",
        "status",
        "code",
        "detail",
        type=TEXT,
        title=TEXT,
        status={"type": "integer"},
        code=TEXT,
        detail=TEXT,
    ),
}
_MALFORMED = "A parameter is unknown, repeated or malformed. `parameter` names it."
# The problems of any request.
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


def _header(text: str, kind: str = "string") -> dict[str, Any]:
    return {"description": text, "schema": {"type": kind}}


_REQUEST_ID = {"X-Request-Id": _header("Names the request in the log.")}
_RETRY_AFTER = {"Retry-After": _header("Seconds after which to try again.", "integer")}
_CHALLENGE = {"WWW-Authenticate": _header("The missing credential (RFC 6750).")}
# Of keys that have a limit.
_RATE_LIMIT = {
    "RateLimit": _header("The rest of the key's rate limit."),
    "RateLimit-Policy": _header("The key's rate limit."),
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

    Attributes:
        route: The route.

    Args:
        routes: The routes of the API, without this one.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.route = Route("GET", "/openapi.json", None, self.describe, DESCRIPTION)
        self._body = msgspec.json.encode(document_of([*routes, self.route]))

    async def describe(self, _: web.Request, __: Caller) -> web.Response:
        """Return the document."""
        return web.Response(body=self._body, content_type=JSON)


DESCRIPTION = Documentation(
    summary="This document", response="The OpenAPI document.", schema=object_schema("openapi", "paths")
)


def document_of(routes: Sequence[Route]) -> dict[str, Any]:
    """The document."""
    used = [each for route in routes for each in (*route.documentation.bodies.values(), route.documentation.schema)]
    types = list(dict.fromkeys(each for each in used if isinstance(each, type)))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
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
            "responses": {f"Problem{status}": _problem(status, text) for status, text in (_ANY | _WITH_KEY).items()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer KEY`"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _operation(route: Route, schema_of: Mapping[type, Any]) -> dict[str, Any]:
    documentation = route.documentation
    audited = "The audit log records it." if route.declared is not None and route.declared.is_audited else ""
    text = f"{documentation.text} {audited}".strip()
    response = {
        "description": documentation.response
        or inspect.cleandoc(documentation.schema.__doc__ or "").partition("\n")[0],
        "headers": _REQUEST_ID if route.scope is None else _REQUEST_ID | _RATE_LIMIT,
        "content": {
            media_type: {"schema": schema_of[schema] if isinstance(schema, type) else schema}
            for media_type, schema in ({JSON: documentation.schema} | dict(documentation.others)).items()
            if schema is not None
        },
    }
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": documentation.summary if route.declared is None else route.declared.summary,
        **({"description": text} if text else {}),
        "parameters": [_parameter(parameter) for parameter in documentation.parameters],
        "responses": {str(documentation.status): response, **_problems(route)},
    }
    if documentation.bodies:
        content = {
            media_type: {"schema": schema_of[body] if isinstance(body, type) else body}
            for media_type, body in documentation.bodies.items()
        }
        operation["requestBody"] = {"required": True, "content": content}
    if route.declared is not None:
        # In OpenAPI 3.1 any scheme may name the scopes that the caller needs.
        scopes = [scope.value for scope in route.declared.scopes]
        operation["security"] = [{"bearer": scopes}, {"header": scopes}]
    return operation


def _problems(route: Route) -> dict[str, Any]:
    common = _ANY if route.scope is None else _ANY | _WITH_KEY
    problems: dict[str, Any] = {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in common}
    own = {status: [text] for status, text in route.documentation.problems.items()}
    if route.declared is not None:
        own.setdefault(422, [_MALFORMED])
        if route.documentation.bodies.keys() == {JSON}:
            own[415] = ["The body is not JSON, or is compressed."]
        for code, text in route.declared.errors.items():
            own.setdefault(STATUS_OF[code], []).append(f"{text} (`{code}`).")
    problems |= {str(status): _problem(status, " ".join(texts)) for status, texts in own.items()}
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
        "schema": parameter.schema,
    }


def _name(route: Route) -> str:
    """A name for programs, such as `get_v1_orders_order_id`."""
    parts = [part.strip("{}").replace("-", "_").replace(".", "_") for part in route.path.split("/") if part]
    return "_".join([route.method.lower(), *parts])
