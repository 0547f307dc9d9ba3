"""The mapping of a document to a whole order."""

from dataclasses import replace
from typing import Any

import msgspec

from ingest.domain.orders.order import InvalidDocument, Order, OrderLine, SkippedDocument, check_order
from ingest.mapping.compiled.conditions import compile_conditions
from ingest.mapping.compiled.declaration import Field, MappingFile, OrderFields, Type
from ingest.mapping.compiled.fields import compile_field, unless_none
from ingest.mapping.compiled.lines import ReadLines, compile_lines
from ingest.mapping.compiled.notes import Notes
from ingest.mapping.compiled.paths import Read, compile_path, single_path, text_of, walk
from ingest.mapping.compiled.pipelines import EvaluationScope
from ingest.mapping.compiled.totals import ATTRIBUTE as DIFFERENCE
from ingest.mapping.compiled.totals import TotalComparison, compile_tables
from ingest.mapping.decoding import decode_json
from ingest.mapping.errors import MappingError, Mismatch, type_name
from ingest.mapping.parts import KEY
from ingest.mapping.query_parts import part_of

# The types of the order's fields, apart from `id`. An order requires the first three.
_KINDS: dict[str, Type] = {
    "currency": "text",
    "status": "text",
    "placed_at": "timestamp",
    "updated_at": "timestamp",
    "customer_id": "text",
    "country": "text",
}
_NEEDED = {"currency", "status", "placed_at"}
# A value that does not fit is left out. Without `updated_at`, the order would have another version.
_OPTIONAL = {"customer_id", "country"}


class MappedDocument(msgspec.Struct, frozen=True, gc=False):
    """The order in a document, with the field and the problem of each optional value that was left out."""

    order: Order
    omitted: list[str] = []

    @property
    def total_difference(self) -> str | None:
        """The document's total minus the sum of the lines, or None if they are equal or were not compared."""
        return self.order.attributes.get(DIFFERENCE)


class CompiledMapping:
    """Maps documents of one shape to orders. Immutable, and safe to use from several threads.

    Attributes:
        parts: the lists that are fetched by separate requests.
    """

    def __init__(self, file: MappingFile) -> None:
        self.parts = [part_of(name, part) for name, part in file.parts.items()]
        self._envelope = () if file.envelope is None else single_path(file.envelope, ("envelope",)).steps
        self._is_optional = file.envelope_optional
        # A list that is empty would hold for every document.
        self._skips = [compile_conditions([each], ("skip",)) for each in file.skip]
        self._skip_values = [compile_path(single_path(each.path, ("skip", "path"))) for each in file.skip]
        self._fields: dict[str, Read] = {}
        self._optional: list[tuple[str, Read]] = []
        scope = self._compile_order(file.order)
        self._lines, self._total = _compile_lines(file, scope)
        scope = EvaluationScope(scope.currency, is_attribute=True)
        self._attributes = [
            (name, compile_field(field, "json", ("attributes", name), scope)) for name, field in file.attributes.items()
        ]
        if self._total is not None and DIFFERENCE in file.attributes:
            raise MappingError("the name of the difference from `total`: choose another", ("attributes", DIFFERENCE))

    def _compile_order(self, fields: OrderFields) -> EvaluationScope:
        is_requested = isinstance(fields.id, Field) and fields.id.requested
        if is_requested and fields.id != Field(requested=True):
            raise MappingError("`requested` cannot be combined with other keys", ("order", "id"))
        scope = EvaluationScope()
        for name, kind in _KINDS.items():
            if (declared := getattr(fields, name)) is not None:
                if name == "currency":
                    declared = unless_none(declared, "")
                needed = name if name in _NEEDED else ""
                own = replace(scope, is_version=name == "updated_at")
                read = compile_field(declared, kind, ("order", name), own, needed=needed)
                if name in _OPTIONAL:
                    self._optional.append((name, read))
                else:
                    self._fields[name] = read
                scope = EvaluationScope(self._fields["currency"])
        self._id_at = f".{fields.id}" if isinstance(fields.id, str) else f".{fields.id.path or ''}".rstrip(".")
        self._id = None if is_requested else compile_field(fields.id, "text", ("order", "id"), scope, needed="id")
        return scope

    def decode(self, body: bytes, order_id: str | None) -> Order:
        """Return the order in a document, as `read` does."""
        return self.read(body, order_id).order

    def read(self, body: bytes, order_id: str | None) -> MappedDocument:
        """Map the document of the order `order_id`, or of any order with None.

        Raises:
            TruncatedDocument: it is truncated.
            SkippedDocument: one of the conditions `skip` holds.
            InvalidDocument: it does not fit the mapping, belongs to another order, or contains values that cannot be stored
                exactly. The message contains the problem and its location, without a value.
        """
        document = decode_json(body)
        envelope = self._envelope
        try:
            if envelope:
                document, envelope = self._unwrapped(document, envelope)
            notes = Notes()
            order = self._mapped(document, order_id, notes)
        except Mismatch as mismatch:
            raise InvalidDocument(_message(mismatch, text_of(envelope))) from None
        try:
            check_order(order, body)
        except InvalidDocument as error:
            raise InvalidDocument(f"the mapped order: {error}") from None
        if not notes.omitted:
            return MappedDocument(order)
        return MappedDocument(order, [f"{name}: {_message(each, text_of(envelope))}" for name, each in notes.omitted])

    def skips(self, body: bytes) -> bool:
        """Return whether one of the conditions `skip` holds for a document, with or without its envelope."""
        if not self._skips:
            return False
        try:
            document = decode_json(body)
            return self._is_skipped(walk(document, self._envelope) or document)
        except (InvalidDocument, Mismatch):
            return False

    def skips_part(self, body: bytes) -> bool | None:
        """Return the same for a part of a document, or None if it does not contain the value of a condition."""
        if not self._skips:
            return False
        try:
            document = decode_json(body)
            order = walk(document, self._envelope) or document
            is_shown = all(read(order, order) is not None for read in self._skip_values)
            return self._is_skipped(order) if is_shown else None
        except (InvalidDocument, Mismatch):
            return None

    def _is_skipped(self, order: Any) -> bool:
        return any(holds is not None and holds(order, order) for holds in self._skips)

    def identify(self, body: bytes) -> str | None:
        """Return the order ID in a document, with or without its envelope, or None without an ID."""
        try:
            document = decode_json(body)
            order = walk(document, self._envelope) or document
            return None if self._id is None else str(self._id(order, order))
        except (InvalidDocument, Mismatch):
            return None

    def _unwrapped(self, document: Any, envelope: tuple[str | int, ...]) -> tuple[Any, tuple[str | int, ...]]:
        inner = walk(document, envelope)
        if inner is not None:
            if self.parts and isinstance(inner, dict) and isinstance(document, dict):
                inner[KEY] = document.get(KEY)
            return inner, envelope
        if not self._is_optional:
            raise Mismatch("no value for the order")
        return document, ()

    def _mapped(self, document: Any, order_id: str | None, notes: Notes) -> Order:
        if document.__class__ is not dict:
            raise Mismatch(f"expected `object`, got {type_name(document)}")
        mapped_id = order_id if self._id is None else self._id(document, document)
        if order_id is not None and mapped_id != order_id:
            raise Mismatch("the document belongs to another order", self._id_at)
        if self._skips and self._is_skipped(document):
            raise SkippedDocument("the shop does not count it as an order, by `skip` of the mapping")
        lines: list[OrderLine] = []
        for read in self._lines:
            lines += read(document, notes)
        attributes = {}
        for name, read_attribute in self._attributes:
            value = notes.optional(name, read_attribute, document, document)
            if value is not None:
                attributes[name] = value
        if self._total is not None and (difference := self._total.complete(lines, document, notes)):
            attributes[DIFFERENCE] = f"{difference:f}"
        values = {name: read_field(document, document) for name, read_field in self._fields.items()}
        for name, read_optional in self._optional:
            values[name] = notes.optional(name, read_optional, document, document)
        return Order(id=mapped_id or "", lines=tuple(lines), attributes=attributes, **values)


def _compile_lines(file: MappingFile, scope: EvaluationScope) -> tuple[list[ReadLines], TotalComparison | None]:
    if not file.lines:
        raise MappingError("needs at least one [[lines]]", ("lines",))
    if file.order.total is not None:
        read = compile_field(file.order.total, "decimal", ("order", "total"), scope)
        lines, toward, unrounded = compile_tables(file.lines, scope)
        return lines, TotalComparison(read, toward, unrounded)
    for index, table in enumerate(file.lines):
        for name in ("toward_total", "unrounded_price"):
            if getattr(table, name):
                raise MappingError(f"`{name}` needs `total` in [order]", ("lines", index, name))
    return [compile_lines(table, ("lines", index), scope) for index, table in enumerate(file.lines)], None


def _message(mismatch: Mismatch, envelope: str) -> str:
    at = (mismatch.at or "").removeprefix("$")
    return f"{mismatch.problem} - at `${envelope}{at}`"
