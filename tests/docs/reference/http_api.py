"""The reference pages of the HTTP API, one for each kind of resource, written from its OpenAPI document."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

_WIDTH = 100
_ADDRESS = "http://127.0.0.1:8080"
_INTRODUCTION = """\
# HTTP API

[Use the HTTP API](../enqueue/http-api.md) shows how to run `ingest api` and how to begin. A running
API serves its OpenAPI 3.1 document at `/openapi.json`.

Generated from this document by `make reference`.

## Sources and keys

With several sources, the routes of a source are below `/v1/sources/NAME/`, such as
`/v1/sources/shop-de/orders` for `/v1/orders`. A single source has both.

Send the API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`. The examples omit it, because
an API without keys needs none. Each route names the [scope](../enqueue/api-keys.md) that the key
requires.

## Errors

[Errors](problems.md) lists the codes. Each route also responds with these statuses. 401, 403 and
429 concern only routes with a scope.

"""
# Values in the paths and queries of the examples.
_VALUES = {"order_id": "536365", "webhook": "shopify", "entry": "1763629200123-0", "job": "12", "backfill": "12"}
_QUERIES = {
    "GET /v1/orders": "?currency=GBP&limit=2",
    "GET /v1/dead-letters": "?reason=not_found&limit=2",
    "GET /v1/dead-letters/export": "?format=csv",
    "GET /v1/retries": "?limit=2",
    "GET /v1/audit": "?limit=2",
    "GET /v1/jobs": "?limit=2",
    "GET /v1/webhooks/{webhook}": "?challenge=some-text",
}
_BODIES: dict[str, object] = {
    "POST /v1/orders": {"order_ids": ["536365", "536366"]},
    "PUT /v1/orders/{order_id}": {
        "id": "536365",
        "status": "placed",
        "placed_at": "2010-12-01T08:26:00Z",
        "updated_at": "2010-12-02T09:00:00Z",
        "currency": "GBP",
        "lines": [{"sku": "85123A", "quantity": 6, "unit_price": "2.55"}],
    },
    "POST /v1/retries/run-now": {"reasons": ["timeout"]},
    "POST /v1/retries/dead-letter": {"ids": ["536365"], "dry_run": True},
    "POST /v1/dead-letters/replay": {"reasons": ["not_found"], "dry_run": True},
    "POST /v1/dead-letters/drop": {"until": "2026-10-01T00:00:00Z", "dry_run": True},
    "POST /v1/pause": {"seconds": 600, "reason": "shop maintenance", "dry_run": True},
    "POST /v1/resume": {},
    "POST /v1/tune": {"rate": 2, "dry_run": True},
    "POST /v1/workers/drain": {"target": "web1", "reason": "kernel update"},
    "POST /v1/workers/log-level": {"level": "debug", "host": "web1"},
    "POST /v1/jobs": {"kind": "orders.enqueue", "orders": {"status": "placed"}, "rate": 50},
    "POST /v1/backfills": {"since": "2026-10-01T00:00:00Z", "dry_run": True},
    "POST /v1/webhooks/{webhook}": {"id": 536365},
}
_NEEDS = {
    "{webhook}": "needs a webhook",
    "{entry}": "needs a dead letter with this ID",
    "{job}": "needs a job with this number",
    "backfills": "needs a list of orders",
    "workers/": "needs a worker on this host",
}
# Members of bodies that their types do not describe, because the name is enough in the code.
_MEMBERS = {
    "order_ids": "The IDs of the orders.",
    "origin": "The program that enqueues them.",
    "source": "Accepted for `origin`, its former name.",
    "express": "`true` enqueues into the lane that workers read first.",
    "ids": "Order IDs, or IDs of dead letters.",
    "reasons": "Only for these reasons.",
    "since": "At this time or later.",
    "until": "Before this time.",
    "everything": "`true` selects everything. Without it, an empty selection is an error.",
    "text": "Only with this text in the error or the order ID.",
    "shape": "Only with this error shape.",
    "attributes": "Only with these fields or attributes.",
    "dry_run": "`true` only shows what would be done.",
    "reason": "Shown to other operators.",
    "reject_orders": "`true` rejects new orders with 503.",
    "hold_polls": "`true` stops polls of the shop's list.",
    "concurrency": "Orders in flight in each process.",
    "rate": "Requests, orders or changes per second.",
    "reset": "`true` returns to the configured limits.",
    "kind": "The kind of the job.",
    "selection": "The selected dead letters or retries.",
    "format": "The format of the exported file, by default `jsonl`.",
    "orders": "The selected orders.",
    "sample": "The most orders that a preview fetches, 20 by default.",
    "target": "Name of a host or worker process.",
    "undo": "`true` ends the drain.",
    "level": "The log level. `null` is the configured one.",
    "host": "Only workers on this host.",
}


# The page of each first part of a path below `/v1/`. All others are on the page of the service.
_SERVICE = "service"
_PAGES = {
    "orders": "Orders",
    "queue": "Queue",
    "retries": "Retries",
    "dead-letters": "Dead letters",
    "jobs": "Jobs",
    "backfills": "Backfills",
    "controls": "Controls of sources and workers",
    "webhooks": "Webhooks",
    _SERVICE: "Sources, audit log and health",
}
_CONTROLS = {"pause", "resume", "tune", "workers"}


def http_api_pages(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names and the texts of the pages, in Markdown. The first one lists all routes, and keeps their anchors for old links."""
    common = document["components"]["responses"]
    lines = [_INTRODUCTION + "| status | meaning |\n|---|---|"]
    lines += [
        f"| {name.removeprefix('Problem')} | {response['description']} |" for name, response in sorted(common.items())
    ]
    lines.append("\n## Routes\n\n| route | purpose |\n|---|---|")
    routes = [
        (method.upper(), path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    lines += [
        f'| <a id="{(anchor := _anchor(f"{method} {path}"))}"></a>[`{method} {path}`](http-api/{_page(path)}.md#{anchor}) '
        f"| {operation['summary']}. |"
        for method, path, operation in routes
    ]
    yield "http-api", "\n".join(lines) + "\n"
    for page, title in _PAGES.items():
        lines = [f"# HTTP API: {title}\n\n[HTTP API](../http-api.md) describes keys, errors and all routes."]
        for method, path, operation in routes:
            if _page(path) == page:
                lines += _section(method, path, operation, document)
        yield f"http-api/{page}", "\n".join(lines) + "\n"


def _page(path: str) -> str:
    first = path.removeprefix("/v1/").partition("/")[0]
    return "controls" if first in _CONTROLS else first if first in _PAGES else _SERVICE


def _anchor(heading: str) -> str:
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _section(method: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n## {method} {path}\n"
    yield _wrapped(operation["summary"] + ".")
    for paragraph in operation.get("description", "").split("\n\n"):
        if paragraph:
            yield "\n" + _wrapped(paragraph)
    for scheme in operation.get("security", ())[:1]:
        (scopes,) = scheme.values()
        yield "\nScope: " + " and ".join(f"`{scope}`" for scope in scopes)
    yield from _example(method, path, operation)
    if operation["parameters"]:
        yield "\n| parameter | in | values | description |\n|---|---|---|---|"
        for parameter in operation["parameters"]:
            name, place = parameter["name"], parameter["in"]
            yield f"| `{name}` | {place} | {_type(parameter['schema'])} | {_cell(parameter['description'])} |"
    for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
        yield from _body(media_type, body["schema"], document)
    yield "\n| status | meaning |\n|---|---|"
    for status, response in operation["responses"].items():
        if "$ref" not in response:
            yield f"| {status} | {_cell(response['description'])} |"
    yield from _response(operation["responses"], document)


def _example(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    route = f"{method} {path}"
    address = _ADDRESS + path.format(**_VALUES) + _QUERIES.get(route, "")
    words = ["curl -f" if method in {"GET", "POST"} else f"curl -f -X {method}"]
    if "requestBody" in operation:
        words.append(f"--json '{json.dumps(_BODIES[route])}'")
    words.append(f"'{address}'" if "?" in address else address)
    reason = next((reason for part, reason in _NEEDS.items() if part in path), None)
    yield f"\n<!-- {'run: running' if reason is None else f'not run: {reason}'} -->\n```sh"
    command = " ".join(words)
    yield command if len(command) <= _WIDTH else f" \\\n{' ' * 4}".join(words)
    yield "```"


def _body(media_type: str, schema: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    schema = _resolved(schema, document)
    yield f"\nBody: `{media_type}`. {_first(schema)}".rstrip().removesuffix(".") + "."
    if schema.get("properties"):
        yield "\n| member | values | required | description |\n|---|---|---|---|"
        for name, member, required in _members(schema, document):
            described = _cell(_description(member) or _MEMBERS.get(name.rpartition(".")[2], ""))
            yield f"| `{name}` | {_type(member)} | {'yes' if required else ''} | {described} |"


def _response(responses: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    success = next(response for status, response in responses.items() if status.startswith("2"))
    schema = success.get("content", {}).get("application/json", {}).get("schema", {})
    if members := [*_members(_resolved(schema, document), document)]:
        yield "\n| member of the response | values | description |\n|---|---|---|"
        for name, member, _ in members:
            yield f"| `{name}` | {_type(member)} | {_cell(_description(member))} |"


def _members(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """The name, schema and necessity of each member, including members of nested objects."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    for name in dict.fromkeys([*properties, *required]):
        member = _resolved(properties.get(name, {}), document)
        yield name, member, name in required
        options = [_resolved(option, document) for option in _options(member)]
        for option in options:
            below, inner = (name, [option]) if "items" not in option else (f"{name}[]", _options(option["items"]))
            found: dict[str, list[tuple[Mapping[str, Any], bool]]] = {}
            for one in inner:
                for further, value, necessary in _members(_resolved(one, document), document):
                    found.setdefault(further, []).append((value, necessary))
            for further, several in found.items():
                value, necessary = several[0]
                merged = {"anyOf": [each for each, _ in several]} if several[1:] else value
                yield f"{below}.{further}", merged, necessary


def _options(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [schema, *schema.get("anyOf", schema.get("oneOf", ()))]


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _description(schema: Mapping[str, Any]) -> str:
    return next((_first(option) for option in _options(schema) if "description" in option), "")


def _first(schema: Mapping[str, Any]) -> str:
    return str(schema.get("description", "")).partition("\n")[0]


def _type(schema: Mapping[str, Any]) -> str:
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(option) for option in schema[several]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "object" if "$ref" in schema or "properties" in schema else "any")
    if isinstance(kind, list):
        return " or ".join(_type({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return _limited(kind, schema)


def _limited(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "string":
        if schema.get("format") == "date-time":
            return "ISO 8601"
        return f"text, up to {schema['maxLength']} characters" if "maxLength" in schema else "text"
    low, high, above = (schema.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    if kind not in {"integer", "number"} or low is high is above is None:
        return kind
    if above is not None:
        return f"{kind}, above {_number(above)}" + ("" if high is None else f" up to {_number(high)}")
    return f"{kind}, at least {_number(low)}" if high is None else f"{kind}, {_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:,.15g}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))
