"""The keys of a mapping file and their types, described for users in docs/reference/mapping.md."""

from typing import Annotated, Any, Literal

import msgspec

Type = Literal["text", "integer", "decimal", "quantity", "timestamp", "boolean", "json"]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rejects unknown keys, so that typing mistakes are reported."""


class Condition(Strict, frozen=True, kw_only=True):
    """A condition for a value, which must fulfil all given keys."""

    path: str
    present: bool | None = None
    equals: Any = msgspec.UNSET
    differs: Any = msgspec.UNSET
    none: list[Any] = []


class Field(Strict, frozen=True, kw_only=True):
    """The source of one value (exactly one of the first eight keys), and its conversions."""

    path: str | None = None
    jmespath: str | None = None
    value: Any = msgspec.UNSET
    first: list["str | Field"] | None = None
    concat: list["str | Field"] | None = None
    cases: list["Field"] | None = None
    sum: list["str | Field"] | None = None
    requested: bool = False

    type: Type | None = None
    none: list[Any] = []
    default: Any = msgspec.UNSET
    when: Condition | list[Condition] | None = None
    # text
    values: dict[str, Any] | None = None
    otherwise: Any = msgspec.UNSET
    strip: bool = False
    remove_prefix: str = ""
    html: bool = False
    change_case: Literal["upper", "lower"] | None = None
    # decimal
    minor_units: Annotated[int, msgspec.Meta(ge=0, le=18)] | Literal["currency", "stripe"] | None = None
    divide_by: str | None = None
    digits: Annotated[int, msgspec.Meta(ge=0, le=18)] | None = None
    negate: bool = False
    # timestamp
    format: str | None = None
    zone: str | None = None


SOURCES = ("path", "jmespath", "value", "first", "concat", "cases", "sum", "requested")
"""The keys of a field that define the source of its value."""

OPTIONS: dict[str, tuple[Type, ...]] = {
    "values": ("text",),
    "otherwise": ("text",),
    "strip": ("text",),
    "remove_prefix": ("text",),
    "html": ("text",),
    "change_case": ("text",),
    "minor_units": ("decimal",),
    "divide_by": ("decimal",),
    "digits": ("decimal",),
    "negate": ("decimal", "quantity"),
    "format": ("timestamp",),
    "zone": ("timestamp",),
}
"""The keys of a field that convert values, with the types that support them."""

Declared = str | Field
"""A field, or only its path as a text."""


class OrderFields(Strict, frozen=True, kw_only=True):
    """`[order]`."""

    id: Declared
    status: Declared
    placed_at: Declared
    currency: Declared
    updated_at: Declared | None = None
    customer_id: Declared | None = None
    country: Declared | None = None
    total: Declared | None = None


class LineFields(Strict, frozen=True, kw_only=True, rename={"source": "from"}):
    """One table of `[[lines]]`, a list in the document whose elements become order lines."""

    sku: Declared
    quantity: Declared
    unit_price: Declared
    description: Declared | None = None
    source: str | list[str] | None = None
    jmespath: str | None = None
    where: Condition | list[Condition] | None = None
    optional: bool = False
    omit_zero: bool = False
    toward_total: bool | str = False
    unrounded_price: Declared | None = None


class PartDeclaration(Strict, frozen=True, kw_only=True):
    """One table of `[parts]`, a list that is fetched by separate requests, page by page."""

    items: str
    url: str | None = None
    body: dict[str, Any] | None = None
    in_order: bool = False
    next: str | None = None
    more: str | None = None
    next_parameter: str | None = None
    page_parameter: str | None = None
    page_size: Annotated[int, msgspec.Meta(ge=1)] | None = None


class MappingFile(Strict, frozen=True, kw_only=True):
    """The whole file."""

    order: OrderFields
    lines: list[LineFields]
    attributes: dict[str, Declared] = {}
    parts: dict[str, PartDeclaration] = {}
    envelope: str | None = None
    envelope_optional: bool = False
    skip: list[Condition] = []


NO_VALUE = msgspec.UNSET
"""The value of a missing key whose values may be of any type."""
