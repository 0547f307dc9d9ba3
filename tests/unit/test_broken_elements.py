"""Elements of a page that are not JSON are isolated, wherever they are, and no other element changes."""

import json
from random import Random
from typing import Any

import pytest

from ingest.domain.errors import ListFault
from ingest.sources.order_lists import list_values
from ingest.upstream.lists.declaration import ListDeclaration

BROKEN = (
    '{"sum": NaN, "id": "%s"}',
    '{"id": "%s", "name": "a\tb"}',
    '{"lines": [{"id": "other"}, {"id": 1e}], "id": "%s"}',
    '{"id": "%s", "path": "\\q \\" ] }"}',
    '{"id": "%s", "deep": ' + "[" * 3_000 + "]" * 3_000 + "}",
)


def page(elements: list[str], items: str) -> bytes:
    """A page with an array at this path, and brackets in texts around it."""
    body: str = f"[{', '.join(elements)}]"
    for key in reversed(items.split(".") if items else []):
        body = f'{{"note": "[{{\\"", "{key}": {body}, "end": []}}'
    return body.encode()


def read(elements: list[str], items: str) -> Any:
    declared = ListDeclaration(url="https://x.test/orders?since={since}", items=items, updated_at="")
    return list_values(declared)[1].read(page(elements, items), {}, 0)


@pytest.mark.parametrize("items", ["", "orders", "data.orders.nodes"])
@pytest.mark.parametrize("seed", range(30))
def test_the_other_elements_are_read_and_each_broken_one_is_named(items: str, seed: int) -> None:
    random = Random(seed)
    is_broken = [random.random() < 0.3 for _ in range(20)]
    elements = [
        random.choice(BROKEN) % number if broken else json.dumps({"id": str(number), "text": '"[{'})
        for number, broken in enumerate(is_broken)
    ]

    found = read(elements, items)

    assert [order.order_id for order in found.orders] == [str(n) for n, broken in enumerate(is_broken) if not broken]
    assert (found.count, len(found.unusable)) == (20, sum(is_broken))
    named = [f"with the ID {number}," for number, broken in enumerate(is_broken) if broken]
    assert all(name in place for name, place in zip(named, found.unusable, strict=True))


@pytest.mark.parametrize("body", [b"<html>{}</html>", b'[{"id": 1}, {"id": 2]', b'{"orders": [{"id": "a}', b"[", b"}{"])
def test_a_page_that_is_broken_elsewhere_is_no_page(body: bytes) -> None:
    declared = ListDeclaration(url="https://x.test/orders?since={since}")

    with pytest.raises(ListFault, match="no page of the list"):
        list_values(declared)[1].read(body, {}, 0)
