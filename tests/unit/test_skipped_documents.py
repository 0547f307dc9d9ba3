"""Documents that the shop itself does not count as orders are skipped by the mapping."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.workers import metrics

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import InvalidDocument, SkippedDocument
from ingest.mapping.load import load_mapping
from ingest.sources.documents import CountedDecoder

SAMPLES = Path(__file__).parents[1] / "mapping_samples"
SKIPPED = [
    ("woocommerce", {"status": "checkout-draft"}),
    ("woocommerce", {"status": "auto-draft", "total": "0.00", "line_items": []}),
    ("bigcommerce", {"status_id": 0, "status": "Incomplete"}),
    ("bigcommerce", {"is_deleted": True}),
]


def sample(kind: str, **changes: Any) -> bytes:
    document = json.loads((SAMPLES / f"{kind}.json").read_text())
    document.update(changes)
    return json.dumps(document).encode()


@pytest.mark.parametrize(("kind", "changes"), SKIPPED)
async def test_a_document_that_is_no_order_makes_no_row_and_no_error(kind: str, changes: dict[str, Any]) -> None:
    mapping = load_mapping(kind)
    order_id = str(mapping.identify(sample(kind)))
    decoder, request = CountedDecoder(mapping, metrics()), FetchRequest(order_id)

    assert await decoder.decode(sample(kind, **changes), request) == ()
    await decoder.check(sample(kind, **changes), request)
    assert [order.id for order in await decoder.decode(sample(kind), request)] == [order_id]
    assert (mapping.skips(sample(kind, **changes)), mapping.skips(sample(kind))) == (True, False)


def test_a_document_of_another_order_is_not_skipped() -> None:
    with pytest.raises(InvalidDocument, match="another order") as caught:
        load_mapping("woocommerce").read(sample("woocommerce", status="auto-draft"), "another")

    assert not isinstance(caught.value, SkippedDocument)


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        (b'{"id": 1}', None),
        (b'{"id": 1, "status_id": 0}', None),
        (b'{"id": 1, "status_id": 0, "is_deleted": false}', True),
        (b'{"id": 1, "status_id": 2, "is_deleted": false}', False),
        (b"{", None),
    ],
)
def test_an_element_of_a_list_shows_whether_it_is_an_order_if_it_contains_all_values(
    element: bytes, *, expected: bool | None
) -> None:
    assert load_mapping("bigcommerce").skips_part(element) is expected


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"text"', b"{}"])
def test_a_body_that_is_no_document_is_not_skipped(body: bytes) -> None:
    assert not load_mapping("woocommerce").skips(body)
