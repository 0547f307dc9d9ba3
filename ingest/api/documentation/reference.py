"""The reference page of the HTTP API, written from its OpenAPI document: `make reference`."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

_WIDTH = 100
_INTRODUCTION = """\
# HTTP API

Generated from the API's OpenAPI document by `make reference`. A running `ingest api` serves the
document itself at `/openapi.json`. How to run the API, with examples: [Use the HTTP
API](../enqueue/http-api.md).

Errors are `application/problem+json` (RFC 9457); `code` names the kind of problem for programs, and
`detail` describes the error in words. Each response carries `X-Request-Id`, which is also in the log lines
of the request. Every route may also respond with:

"""


def page_of(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    common = document["components"]["responses"]
    lines = [_INTRODUCTION + "| status | when |\n|---|---|"]
    lines += [
        f"| {name.removeprefix('Problem')} | {answer['description']} |" for name, answer in sorted(common.items())
    ]
    lines.append("\n401, 403 and the key's 429 are for routes that need an API key.")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += _section(method.upper(), path, operation, document)
    return "\n".join(lines) + "\n"


def _section(method: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n## {method} {path}\n"
    yield _wrapped(operation["summary"] + ".")
    for paragraph in operation.get("description", "").split("\n\n"):
        if paragraph:
            yield "\n" + _wrapped(paragraph)
    for scheme in operation.get("security", ())[:1]:
        (scopes,) = scheme.values()
        yield f"\nNeeds an API key with the scope `{scopes[0]}`."
    if operation["parameters"]:
        yield "\n| parameter | in | what |\n|---|---|---|"
        for parameter in operation["parameters"]:
            yield f"| `{parameter['name']}` | {parameter['in']} | {parameter['description']} |"
    for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
        yield from _body(media_type, body["schema"], document)
    yield "\n| status | answer |\n|---|---|"
    for status, answer in operation["responses"].items():
        if "$ref" not in answer:
            yield f"| {status} | {answer['description']} |"


def _body(media_type: str, schema: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield f"\nBody: `{media_type}`. {_first(schema)}".rstrip()
    if members := schema.get("properties"):
        yield "\n| member | type | required |\n|---|---|---|"
        for name, member in members.items():
            yield f"| `{name}` | {_type(member)} | {'yes' if name in schema.get('required', ()) else ''} |"


def _first(schema: Mapping[str, Any]) -> str:
    return str(schema.get("description", "")).partition("\n")[0]


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    return str(schema.get("type", "any"))


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))
