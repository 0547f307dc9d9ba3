"""The OpenAPI documentation of a route."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.domain.orders.order_id import SCHEMA

Schema = Mapping[str, Any]
"""A JSON schema."""
TEXT: Schema = {"type": "string"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of a request other than its body.

    Attributes:
        name: of the parameter.
        place: `path`, `query` or `header`.
        text: its purpose.
        schema: of its value.
        is_required: whether requests must have it.
    """

    name: str
    place: str
    text: str
    schema: Schema = field(default_factory=lambda: TEXT)
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """A route's documentation.

    Attributes:
        summary: one line.
        text: more, in Markdown.
        parameters: other than the body.
        bodies: by media type: a type of msgspec or a JSON schema.
        status: of the response that is no error.
        response: when that is given.
        schema: of its JSON, or None if it is never JSON.
        others: schemas of its other possible contents, by media type.
        problems: by status: when the response is that error. The problems of every route are added.
    """

    summary: str
    text: str = ""
    parameters: Sequence[Parameter] = ()
    bodies: Mapping[str, type | Schema] = field(default_factory=dict)
    status: int = 200
    response: str
    schema: Schema | None
    others: Mapping[str, Schema] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=dict)


def object_schema(*required: str, **properties: Schema) -> Schema:
    """An object with these required members, some of which are described."""
    schema: dict[str, Any] = {"type": "object"}
    if required:
        schema["required"] = list(required)
    if properties:
        schema["properties"] = properties
    return schema


ORDER_ID = Parameter(
    "order_id",
    "path",
    "The order's ID, each character but `A-Z a-z 0-9 . _ ~ -` percent-encoded in UTF-8: `/v1/orders/SO%2F2026%2F12`.",
    SCHEMA,
    is_required=True,
)
