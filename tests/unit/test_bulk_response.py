"""The response to a bulk request is divided into documents byte for byte. Errors do not contain its values."""

import sys
import tracemalloc

import pytest

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.errors import ConfigurationFault, PermanentFault, TransientFault
from ingest.upstream.bulk.bulk_response import BulkResponseReader

A, B = b'{"id":"a", "n": 1.0}', b'{ "id" : "b" }'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", b"[%b,%b]" % (A, B)),
        ("", b" \r\n\t[ %b , %b ]\n" % (A, B)),
        ("", b'{"orders":[%b,%b]}' % (A, B)),
        ("", b'{"next":null,"total":2,"page":{"x":[]},"results": [%b,%b]}' % (A, B)),
        ("orders", b'{"errors":[],"orders":[%b,%b]}' % (A, B)),
        ("data.orders", b'{"data":{"x":[1],"orders":[%b,%b]}}' % (A, B)),
        ("data.orders", b'{"errors":[1],"data":{"orders":[%b,%b]}}' % (A, B)),
    ],
)
def test_the_list_is_found_in_the_answer(path: str, body: bytes) -> None:
    listed = BulkResponseReader(path, "id", 50).read(body)

    assert listed.documents == {"a": A, "b": B}
    assert listed.nameless == []


@pytest.mark.parametrize(
    ("id_path", "document", "order_id"),
    [
        ("id", b'{"id":"536365"}', "536365"),
        ("id", b'{"id":450789469}', "450789469"),
        ("id", b'{"id":12345678901234567890123}', "12345678901234567890123"),
        ("id", b'{"x":[{"id":"no"}],"id":"yes"}', "yes"),
        ("id", b'{"\\u0069d":"a\\u0062"}', "ab"),
        ("AmazonOrderId", b'{"AmazonOrderId":"902-3159896"}', "902-3159896"),
        ("order.number", b'{"id":1,"order":{"number":"N1"}}', "N1"),
        ("id", b'{"ID":"a"}', None),
        ("id", b'{"id":null}', None),
        ("id", b'{"id":1.5}', None),
        ("id", b'{"id":true}', None),
        ("id", b'{"id":["a"]}', None),
        ("id", b'["id"]', None),
        ("id", b'"id"', None),
        ("id", b"null", None),
        ("order.number", b'{"order":"N1"}', None),
        ("id", b'{"id":"\xff"}', None),
    ],
)
def test_the_id_of_a_document_is_text_or_an_integer(id_path: str, document: bytes, order_id: str | None) -> None:
    listed = BulkResponseReader("", id_path, 50).read(b"[%b,%b]" % (document, document))

    assert listed.documents == ({} if order_id is None else {order_id: document})
    assert listed.nameless == ([document] * 2 if order_id is None else [])


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        ("", b"<html>", "malformed"),
        ("", b"", "truncated"),
        ("", b"null", "Expected"),
        ("", b'"s3cr3t"', "Expected"),
        ("", b"{}", "without a list"),
        ("", b"{} s3cr3t}", "malformed"),
        ("orders", b"[]", "Expected"),
        ("orders", b'{"s3cr3t":[]}', r"\$\.orders"),
        ("data.orders", b'{"data":{"orders":"s3cr3t"}}', r"no list - at `\$\.data\.orders`"),
        ("", b"[" * 100_000, "truncated|deep"),
        ("", b"[" + b"[" * 500_000 + b"]" * 500_000 + b"]", "Expected `object`"),
        # Python 3.14 decodes that, to one document without an ID.
        *([] if sys.version_info >= (3, 14) else [("", b"[" + b"[" * 100_000 + b"]" * 100_000 + b"]", "deep")]),
    ],
)
def test_an_answer_without_a_list_is_refused_and_none_of_its_values_shown(path: str, body: bytes, what: str) -> None:
    with pytest.raises((PermanentFault, TransientFault), match=what) as fault:
        BulkResponseReader(path, "id", 50).read(body)

    assert "s3cr3t" not in str(fault.value)
    if isinstance(fault.value, PermanentFault):
        assert fault.value.reason is DeadReason.INVALID_ORDER


def test_a_response_with_several_lists_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigurationFault, match=r"contains 2 lists: .*`bulk_path`") as fault:
        BulkResponseReader("", "id", 50).read(b'{"orders":[%b],"warnings":["s3cr3t"]}' % A)

    assert not fault.value.uses_attempt
    assert "s3cr3t" not in str(fault.value)


def test_a_list_that_is_named_may_have_others_beside_it() -> None:
    listed = BulkResponseReader("orders", "id", 50).read(b'{"warnings":[],"orders":[%b]}' % A)

    assert list(listed.documents.values()) == [A]


def test_a_truncated_answer_may_be_tried_again() -> None:
    body = b'{"orders":[%b,%b]}' % (A, B)

    for length in range(len(body)):
        with pytest.raises(TransientFault) as fault:
            BulkResponseReader("", "id", 50).read(body[:length])
        assert fault.value.retry_reason is RetryReason.TRUNCATED
        assert fault.value.reached


MUCH = 2_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"[%b1]" % (b"1," * (MUCH // 2)),
        b"[%b{}]" % (b"{}," * (MUCH // 3)),
        b'[{"id":"a"},%b[]]' % (b"[]," * (MUCH // 3)),
        b'{"x":[%b1]}' % (b"1," * (MUCH // 2)),
        b'{"a":%b1%b,"b":[]}' % (b'{"a":' * 100_000, b"}" * 100_000),
    ],
    ids=["numbers", "objects", "lists", "numbers in an object", "deep"],
)
def test_of_a_malicious_answer_little_is_built(body: bytes) -> None:
    reader = BulkResponseReader("", "id", 50)
    tracemalloc.start()
    try:
        with pytest.raises((PermanentFault, TransientFault)):
            reader.read(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 * len(body) + 60 * 256 * 1024 // 4


def test_the_only_list_of_a_large_answer_is_found() -> None:
    large = b'{"id":"b","x":"%b"}' % (b"[{" * 200_000)
    body = b'{ "n": -1.5e3, "t": "a\\"[{", "z": null, "orders" : [%b , %b], "links": {"next": [1]}}' % (A, large)

    assert BulkResponseReader("", "id", 50).read(body).documents == {"a": A, "b": large}


def test_a_large_answer_with_what_is_no_document_is_refused_as_a_whole_and_so_requested_in_halves() -> None:
    large = b'{"id":"b","x":"%b"}' % (b"x" * 300_000)

    with pytest.raises(PermanentFault, match="Expected `object`"):
        BulkResponseReader("", "id", 50).read(b"[%b,[]]" % large)
