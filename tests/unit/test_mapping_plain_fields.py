"""Plain fields, which are read together, have the values and the errors of those that are read one by one."""

import json
from typing import Any

import pytest

from ingest.domain.orders.order import InvalidDocument
from ingest.mapping.load import compile_mapping

NAMES = ("id", "status", "placed_at", "updated_at", "currency", "customer_id", "country")
LINE_NAMES = ("sku", "description", "quantity", "unit_price")
MOMENT = "2024-05-06T07:08:09+02:00"
LINE = {"sku": "a", "description": "b", "quantity": 1, "unit_price": "1.50"}
ODD: list[Any] = [
    *(None, True, 0, 7, -1, 2**53 + 1, 10**40, 1.5, [], {}, [1], {"a": 1}, {"inner": "a"}, [{"inner": 1}]),
    *("", " ", "a", "é", "1", "-1", "+1", "01", "1.50", "-0.00", "1.", ".5", "1e2", "1E+2", "1E+99999999999", "1_000"),
    *(" 1.5", "1.5\n", "٣", "NaN", "Infinity", "-Infinity", "sNaN", "1.5e-7", "0.0000001", "9" * 70, "a\0"),
    *("2024-05-06", "2024-05-06T07:08:09", "2024-05-06T07:08:09Z", "2024-13-06T07:08:09Z", "0001-01-01T00:00:00+05:00"),
]


def mapping_text(written: str, inner: str = "") -> str:
    """A mapping whose every field is a path, below a member if it is named, in a field as it is written."""

    def fields(names: tuple[str, ...]) -> str:
        return "\n".join(f"{name} = {written.format(path=name + inner)}" for name in names)

    kinds = {"text": "text", "decimal": "decimal", "at": "timestamp", "integer": "integer", "quantity": "quantity"}
    attributes = "\n".join(
        f'{name} = {{ first = ["{name}{inner}"], type = "{kind}" }}'
        if "first" in written
        else f'{name} = {{ path = "{name}{inner}", type = "{kind}" }}'
        for name, kind in kinds.items()
    )
    anything = f"anything = {written.format(path='anything' + inner)}"
    return f"[order]\n{fields(NAMES)}\n[[lines]]\nfrom = 'items'\n{fields(LINE_NAMES)}\n[attributes]\n{attributes}\n{anything}\n"


def result_of(mapping: str, document: object, order_id: str | None) -> object:
    try:
        order = compile_mapping(mapping).decode(json.dumps(document).encode(), order_id)
    except InvalidDocument as error:
        return str(error)
    return repr(order)


@pytest.mark.parametrize("inner", ["", ".inner"])
@pytest.mark.parametrize("name", [*NAMES, *LINE_NAMES, "text", "decimal", "at", "integer", "quantity", "anything"])
def test_a_field_read_with_others_is_as_one_read_alone(name: str, inner: str) -> None:
    plain, alone = mapping_text('"{path}"', inner), mapping_text('{{ first = ["{path}"] }}', inner)

    for odd in ODD:
        order: dict[str, Any] = {"id": "a", "status": "b", "placed_at": MOMENT, "updated_at": MOMENT, "currency": "EUR"}
        line: dict[str, Any] = dict(LINE)
        if inner:
            order = {key: {"inner": value} for key, value in order.items()}
            line = {key: {"inner": value} for key, value in line.items()}
        (line if name in LINE_NAMES else order)[name] = odd
        document = order | {"items": [line]}

        assert result_of(plain, document, None) == result_of(alone, document, None), odd


@pytest.mark.parametrize("document", [[], "a", 1, {}, {"items": 1}, {"items": [1]}, {"items": [[]]}, {"items": [None]}])
def test_a_document_of_another_shape_has_the_error_of_the_first_field(document: object) -> None:
    plain, alone = mapping_text('"{path}"'), mapping_text('{{ first = ["{path}"] }}')

    assert result_of(plain, document, None) == result_of(alone, document, None)


def test_the_document_of_another_order_is_refused() -> None:
    document = {"id": "a", "status": "b", "placed_at": MOMENT, "currency": "EUR", "items": [LINE]}

    assert result_of(mapping_text('"{path}"'), document, "b") == "the document belongs to another order - at `$.id`"
