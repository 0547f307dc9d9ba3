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
        name: The name of the parameter.
        place: `path`, `query` or `header`.
        text: Its purpose.
        schema: The schema of its value.
        is_required: Whether requests must have it.
    """

    name: str
    place: str
    text: str
    schema: Schema = field(default_factory=lambda: TEXT)
    is_required: bool = False

    @property
    def is_repeated(self) -> bool:
        """Whether it may be repeated in a query."""
        return self.schema.get("type") == "array"


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """A route's documentation.

    Attributes:
        summary: One line, unless the operation is declared.
        text: More, in Markdown.
        parameters: Other than the body.
        bodies: The type of msgspec or the JSON schema of each media type.
        status: The status of a response without an error.
        response: When that is given. By default, the description of its type.
        schema: The type or the schema of the JSON, or None if it is never JSON.
        others: Schemas of its other possible contents, by media type.
        problems: The problems of its requests by status. The errors of its operation and the problems of every route are added.
    """

    summary: str = ""
    text: str = ""
    parameters: Sequence[Parameter] = ()
    bodies: Mapping[str, type | Schema] = field(default_factory=dict)
    status: int = 200
    response: str = ""
    schema: type | Schema | None
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
