"""A document that does not fit its mapping is dead-lettered with the error and its path, without any value."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.upstream import response
from fakes.workers import buffer_limit, gauge
from hypothesis import given
from hypothesis import strategies as st
from unit.evidence import answering, circuit

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef
from ingest.domain.deliveries.outcome import DeadLetter, Outcome, Store
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order import InvalidDocument, Order, TruncatedDocument
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.deliver.document_reader import DocumentReader
from ingest.flow.deliver.handler import AttemptLimits, Handler
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.mapping.load import load_mapping, ready_made_names

SAMPLES = Path(__file__).parents[1] / "mapping_samples"
BROKEN = [msgspec.json.decode(line) for line in (SAMPLES / "broken.jsonl").read_bytes().splitlines()]
MAPPINGS = {name: load_mapping(name) for name in ready_made_names()}


class Sending:
    """An external API that sends one document."""

    def __init__(self, document: bytes) -> None:
        self._document = document

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        return response(request, self._document, datetime(2026, 1, 30, tzinfo=UTC))

    fetch_once = fetch


async def _stored(count: int) -> list[str]:
    return ["known"][:count]


async def outcome_of(mapping: str, document: bytes, *, large: int = 1 << 20) -> Outcome:
    handler = Handler(
        Sending(document),
        DocumentReader(OrderDecoder(MAPPINGS[mapping].decode, large), buffer_limit(10, 1_000_000)),
        AttemptLimits(attempts=3, deliveries=5),
        circuit(answering(), window=0.0, stored=_stored),
        Pace(100, gauge(), Pauses()),
    )
    return await handler.handle(Delivery(EntryRef("stream", "1-1"), "1001", 0.0, 1, 1, None, {}))


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken['mapping']}: {broken['says']}")
async def test_a_broken_document_is_dead_lettered_with_what_is_wrong_and_where(broken: dict[str, str]) -> None:
    outcome = await outcome_of(broken["mapping"], broken["document"].encode())

    assert outcome == DeadLetter(DeadReason.INVALID_ORDER, broken["says"])
    assert "secret" not in broken["says"].lower()


async def test_a_large_document_is_mapped_in_a_thread_with_the_same_result() -> None:
    document = (SAMPLES / "shopify-rest.json").read_bytes().replace(b"9007199254740993", b"1001")

    here, in_thread = [await outcome_of("shopify-rest", document, large=large) for large in (1 << 20, 1)]

    assert isinstance(here, Store)
    assert here == in_thread


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_document_that_is_truncated_anywhere_is_told_from_one_that_is_wrong(mapping: str) -> None:
    document = (SAMPLES / f"{mapping}.json").read_bytes().rstrip()

    for end in range(len(document)):
        with pytest.raises(TruncatedDocument):
            MAPPINGS[mapping].decode(document[:end], None)


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, element in inner for place in places(element, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], replacement: Any) -> Any:
    """The document with another value at a place."""
    if not path:
        return replacement
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], replacement)
    return copy


@given(st.data())
def test_whatever_is_somewhere_in_a_document_it_is_an_order_or_invalid(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(MAPPINGS)))
    document = msgspec.json.decode((SAMPLES / f"{name}.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        document = replaced(document, data.draw(st.sampled_from(places(document))), data.draw(values))

    try:
        order = MAPPINGS[name].decode(msgspec.json.encode(document), None)
    except InvalidDocument:
        return

    # It can be stored.
    assert isinstance(order, Order)
    msgspec.json.decode(order.attributes_json(), type=dict[str, Any])
    msgspec.json.decode(order.lines_json(), type=list[Any])
    assert "\0" not in order.attributes_json().decode() + order.lines_json().decode()
