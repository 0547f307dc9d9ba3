"""Orders of a producer are checked before they are sent, and divided in the same way each time."""

from typing import Any

import msgspec
import pytest
from odd_ids import ODD_IDS

from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT, Announcement, InvalidAnnouncement
from ingest.domain.orders.order import InvalidOrderId, decode_order
from ingest.lab.upstream.samples import sample_orders
from ingest.queue.produce.producer_errors import InvalidIdempotencyKey
from ingest.queue.produce.submission import BATCH_BYTES, Orders, checked_orders, submissions

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def sizes(orders: Orders, key: str | None = None) -> list[int]:
    return [len(part.orders) for part in submissions(checked_orders(orders, key), key, 500)]


def test_one_order_is_not_taken_for_the_characters_of_its_id() -> None:
    assert [part.orders for part in submissions(checked_orders("abc", None), None, 500)] == [["abc"]]


def test_orders_are_divided_by_their_number_and_by_their_size() -> None:
    large = Announcement("a", document=b"x" * (BATCH_BYTES // 2 - 200))

    assert sizes(["a"] * 1_001) == [500, 500, 1]
    assert sizes([large] * 5) == [2, 2, 1]
    assert sizes([Announcement("a", document=b"x" * DOCUMENT_LIMIT)] * 2) == [1, 1]
    assert sizes([]) == []


def test_each_part_has_a_key_of_its_own() -> None:
    parts = submissions(["a"] * 1_001, "nightly", 500)

    assert [part.key for part in parts] == ["nightly", "nightly\x1f1", "nightly\x1f2"]


def test_the_same_orders_are_recognized_whatever_their_trace_context_and_others_are_not() -> None:
    def digest(*orders: str | Announcement) -> str:
        [part] = submissions(orders, "key", 500)
        return part.digest

    assert digest("a") == digest(Announcement("a", traceparent=TRACE, origin="shop"))
    assert digest(Announcement("a", document={"x": 1, "y": 2})) == digest(Announcement("a", document={"y": 2, "x": 1}))
    assert len({digest("a"), digest("a", "b"), digest("ab"), digest(Announcement("a", document=b"{}"))}) == 4


def test_an_id_with_blanks_is_not_taken_for_several_orders() -> None:
    def digest(*orders: str | Announcement) -> str:
        [part] = submissions(orders, "key", 500)
        return part.digest

    assert len({digest("a 0 b"), digest("a", "b"), digest("a 0", "b"), digest("a", "0 b"), digest("a\u07100b")}) == 5


@pytest.mark.parametrize("order_id", ODD_IDS)
def test_the_script_can_tell_an_id_from_an_array_by_its_first_byte(order_id: str) -> None:
    for order in (order_id, Announcement(order_id)):
        [part] = submissions([order], None, 500)
        [argument] = part.orders
        sent = argument.encode() if isinstance(argument, str) else argument

        if sent[0] < 0x80:
            assert sent.decode() == order_id
        else:
            assert msgspec.msgpack.decode(sent) == ["order_id", order_id]


@pytest.mark.parametrize("key", ["", "x" * 201, "two\nlines"])
def test_an_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidIdempotencyKey):
        checked_orders("a", key)


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"order_id": "no\nid"}, InvalidOrderId),
        ({"document": b""}, InvalidAnnouncement),
        ({"document": b"x" * (DOCUMENT_LIMIT + 1)}, InvalidAnnouncement),
        ({"document": {"a": object()}}, InvalidAnnouncement),
        ({"traceparent": "anything"}, InvalidAnnouncement),
        ({"traceparent": TRACE + "\n"}, InvalidAnnouncement),
        ({"origin": ""}, InvalidAnnouncement),
        ({"origin": "x" * 201}, InvalidAnnouncement),
        ({"origin": "a\0b"}, InvalidAnnouncement),
    ],
)
def test_what_cannot_be_sent_is_refused_when_it_is_made(parts: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Announcement(**{"order_id": "a", **parts})


def test_a_document_may_be_given_as_bytes_text_mapping_or_order() -> None:
    order_id, sample = next(iter(sample_orders().items()))
    order = decode_order(sample, order_id)
    body = msgspec.json.encode(order)

    given = [body, body.decode(), msgspec.json.decode(body), order]

    documents = [Announcement(order.id, document=document).fields()[b"document"] for document in given]
    assert documents[0] == documents[1] == documents[3]
    assert [msgspec.json.decode(document) for document in documents] == [msgspec.json.decode(body)] * 4


def test_only_what_is_given_becomes_a_field() -> None:
    assert Announcement("a").fields() == {b"order_id": b"a"}
    assert Announcement("a", traceparent=TRACE, origin="Köln").fields() == {
        b"order_id": b"a",
        b"traceparent": TRACE.encode(),
        b"origin": "Köln".encode(),
    }
