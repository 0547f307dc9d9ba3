"""The mapping of a whole order: a document and the ID that was requested in, an order out."""

from typing import Any

import msgspec

from ingest.domain.orders.order import InvalidDocument, Order, OrderLine, check_order
from ingest.mapping.compiled.conditions import single_path
from ingest.mapping.compiled.declaration import Field, MappingFile, OrderFields, Type
from ingest.mapping.compiled.fields import compile_with_code
from ingest.mapping.compiled.lines import ReadLines, compile_lines
from ingest.mapping.compiled.paths import Read, text_of, walk
from ingest.mapping.compiled.pipelines import Scope
from ingest.mapping.compiled.plain_fields import FieldCode, read_named, read_together
from ingest.mapping.decoding import decode_json
from ingest.mapping.errors import MappingError, Mismatch, type_name
from ingest.mapping.parts import KEY, PartPages


class CompiledMapping:
    """Maps documents of one shape to orders. Immutable, and safe to use from several threads.

    Args:
        file: what it was declared as.

    Attributes:
        parts: the lists that take requests of their own.

    Raises:
        MappingError: it cannot be used.
    """

    def __init__(self, file: MappingFile) -> None:
        self.parts = [PartPages(name, part) for name, part in file.parts.items()]
        self._envelope = () if file.envelope is None else single_path(file.envelope, ("envelope",)).steps
        self._is_optional = file.envelope_optional
        self._compile_order(file.order)
        scope = Scope(currency=self._currency)
        if not file.lines:
            raise MappingError("needs at least one [[lines]]", ("lines",))
        lines = [compile_lines(lines, ("lines", index), scope) for index, lines in enumerate(file.lines)]
        self._lines = [with_places for with_places, _ in lines]
        scope = Scope(currency=self._currency, is_attribute=True)
        attributes = {
            name: compile_with_code(field, "json", ("attributes", name), scope)
            for name, field in file.attributes.items()
        }
        self._attributes = [(name, field.read) for name, field in attributes.items()]
        self._read = self._together([fast for _, fast in lines], attributes)

    def _compile_order(self, fields: OrderFields) -> None:
        def compiled(name: str, kind: Type, *, is_needed: bool = False) -> Read:
            declared = getattr(fields, name)
            if declared is None:
                return _nothing
            scope = Scope(None if name == "currency" else self._currency)
            self._codes[name] = compile_with_code(
                declared, kind, ("order", name), scope, needed=name if is_needed else ""
            )
            return self._codes[name].read

        is_requested = isinstance(fields.id, Field) and fields.id.requested
        if is_requested and fields.id != Field(requested=True):
            raise MappingError("`requested` stands alone", ("order", "id"))
        self._codes: dict[str, FieldCode] = {}
        self._currency = compiled("currency", "text", is_needed=True)
        self._id_at = f".{fields.id}" if isinstance(fields.id, str) else f".{fields.id.path or ''}".rstrip(".")
        self._id = None if is_requested else compiled("id", "text", is_needed=True)
        self._status = compiled("status", "text", is_needed=True)
        self._placed_at = compiled("placed_at", "timestamp", is_needed=True)
        self._updated_at = compiled("updated_at", "timestamp")
        self._customer_id = compiled("customer_id", "text")
        self._country = compiled("country", "text")

    def _together(self, lines: list[ReadLines], attributes: dict[str, FieldCode]) -> Read:
        """What reads a whole order, faster than field by field, and does not say where an error is."""
        nothing = FieldCode(_nothing)
        read_lines = FieldCode(lines[0] if len(lines) == 1 else _joined(lines))
        before = [self._codes.get(name, nothing) for name in ("id", "status", "currency", "placed_at")]
        after = [self._codes.get(name, nothing) for name in ("updated_at", "customer_id", "country")]
        return read_together([*before, read_lines, *after, FieldCode(read_named(attributes))], Order)

    def decode(self, body: bytes, order_id: str | None) -> Order:
        """Map the document of the order `order_id`; with None, of whichever order it is.

        Raises:
            TruncatedDocument: it is truncated.
            InvalidDocument: it does not fit the mapping, is another order's, or contains what cannot be stored exactly.
                The message tells what is wrong and where, without a value.
        """
        document = decode_json(body)
        envelope = self._envelope
        try:
            if envelope:
                document, envelope = self._unwrapped(document, envelope)
            order = self._quickly_mapped(document, order_id) or self._mapped(document, order_id)
        except Mismatch as mismatch:
            raise InvalidDocument(_message(mismatch, text_of(envelope))) from None
        try:
            check_order(order, body)
        except InvalidDocument as error:
            raise InvalidDocument(f"the mapped order: {error}") from None
        return order

    def identify(self, body: bytes) -> str | None:
        """The ID of a document's order, with or without its envelope; None if it does not say."""
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

    def _quickly_mapped(self, document: Any, order_id: str | None) -> Order | None:
        """The order, or None if something is wrong with it."""
        try:
            order: Order = self._read(document, document)
        except (Mismatch, ValueError):
            return None
        if self._id is None:
            return msgspec.structs.replace(order, id=order_id or "")
        return order if order_id is None or order.id == order_id else None

    def _mapped(self, document: Any, order_id: str | None) -> Order:
        if document.__class__ is not dict:
            raise Mismatch(f"expected `object`, got {type_name(document)}")
        mapped_id = order_id if self._id is None else self._id(document, document)
        if order_id is not None and mapped_id != order_id:
            raise Mismatch("the document belongs to another order", self._id_at)
        lines: list[OrderLine] = []
        for read in self._lines:
            lines += read(document, document)
        attributes = {}
        for name, read_attribute in self._attributes:
            value = read_attribute(document, document)
            if value is not None:
                attributes[name] = value
        return Order(
            mapped_id or "",
            self._status(document, document),
            self._currency(document, document),
            self._placed_at(document, document),
            tuple(lines),
            self._updated_at(document, document),
            self._customer_id(document, document),
            self._country(document, document),
            attributes,
        )


def _joined(lines: list[ReadLines]) -> ReadLines:
    return lambda order, _: tuple([line for read in lines for line in read(order, order)])


def _nothing(_value: Any, _order: Any) -> None:
    return None


def _message(mismatch: Mismatch, envelope: str) -> str:
    at = (mismatch.at or "").removeprefix("$")
    return f"{mismatch.what} - at `${envelope}{at}`"
