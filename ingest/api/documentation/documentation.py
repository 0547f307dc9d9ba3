"""The OpenAPI documentation of a route."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]
"""A JSON schema."""


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
    schema: Schema = field(default_factory=lambda: {"type": "string"})
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class DocumentedResponse:
    """One kind of answer that is no error.

    Attributes:
        text: when it is given.
        content: a type of msgspec or a JSON schema, or None for a response without a body.
        media_type: of the body.
    """

    text: str
    content: type | Schema | None = None
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """A route's documentation.

    Attributes:
        summary: one line.
        text: more, in Markdown.
        parameters: other than the body.
        bodies: by media type: a type of msgspec or a JSON schema.
        answers: by status.
        problems: by status: when the answer is that error. What any route may answer is added.
    """

    summary: str
    text: str = ""
    parameters: Sequence[Parameter] = ()
    bodies: Mapping[str, type | Schema] = field(default_factory=dict)
    answers: Mapping[int, DocumentedResponse]
    problems: Mapping[int, str] = field(default_factory=dict)


ORDER_ID = Parameter(
    "order_id",
    "path",
    "The order's ID.",
    {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$"},
    is_required=True,
)
