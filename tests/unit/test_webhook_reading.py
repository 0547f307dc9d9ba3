"""The orders of a signed webhook, with the event, the ID, the document, and the ID of the delivery."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import webhook_requests as made
from hypothesis import given
from hypothesis import strategies as st
from webhook_requests import NOW, SECRET, STANDARD_SECRET

from ingest.api.webhooks.declaration import WebhookError
from ingest.api.webhooks.event_time import read_event_time
from ingest.api.webhooks.places import compile_path
from ingest.api.webhooks.reception import ReceivedOrders, Refused, read_webhook
from ingest.api.webhooks.webhook import Webhook
from ingest.domain.deliveries.announcement import UNKNOWN_VERSION

SHOPIFY = 'profile = "shopify"'
STRIPE = 'profile = "stripe"\nevents = ["checkout.session.*"]\norder_id = "data.object.metadata.order"'


@pytest.fixture
def shop(tmp_path: Path) -> Webhook:
    return made.webhook(tmp_path, SHOPIFY)


@pytest.fixture
def woocommerce(tmp_path: Path) -> Webhook:
    return made.webhook(tmp_path, 'profile = "woocommerce"')


def of_shopify(source: Webhook, document: Any, topic: str = "orders/create", **options: str) -> ReceivedOrders | None:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_webhook(source, made.headers(made.shopify(body, topic=topic, **options)), body, NOW)


def refusal(source: Webhook, document: Any, **options: str) -> Refused:
    with pytest.raises(Refused) as caught:
        of_shopify(source, document, **options)
    return caught.value


@pytest.mark.parametrize(
    ("scope", "is_order"),
    [
        ("store/order/created", True),
        ("store/order/updated", True),
        ("store/order/refund/created", True),
        ("store/order/transaction/created", False),
        ("store/product/updated", False),
    ],
)
def test_bigcommerce_announces_orders_by_the_scope_in_the_body(
    tmp_path: Path,
    scope: str,
    is_order: bool,  # noqa: FBT001
) -> None:
    source = made.webhook(tmp_path, 'profile = "bigcommerce"')
    body = json.dumps({"scope": scope, "data": {"type": "order", "id": 250}, "producer": "stores/abc"}).encode()

    found = read_webhook(source, made.headers(made.bigcommerce(body, webhook_id="msg-7")), body, NOW)

    assert (found is not None) == is_order
    if found is not None:
        assert found.announcements[0].order_id == "250"


# -- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "is_order"),
    [
        ("orders/create", True),
        ("orders/updated", True),
        ("orders/delete", False),
        ("app/uninstalled", False),
        ("refunds/create", False),
        ("xorders/create", False),
        ("ORDERS/CREATE", False),
    ],
)
def test_shopify_announces_orders_by_its_topics(shop: Webhook, topic: str, is_order: bool) -> None:  # noqa: FBT001
    # An event that is ignored needs no ID.
    assert (of_shopify(shop, {"id": 1} if is_order else {}, topic) is not None) == is_order


@pytest.mark.parametrize(
    ("topic", "body"),
    [
        ("orders/create", {"id": 2, "updated_at": "2026-11-28T05:00:00-05:00"}),
        ("orders/edited", {"order_edit": {"id": 1, "order_id": 2, "line_items": {"additions": [], "removals": []}}}),
        ("orders/risk_assessment_changed", {"order_id": 2, "risk_level": "low"}),
        ("orders/link_requested", {"order_id": 2}),
        ("refunds/create", {"id": 1, "order_id": 2}),
        ("fulfillments/update", {"id": 1, "order_id": 2, "updated_at": "2026-11-28T05:00:00-05:00"}),
        ("order_transactions/create", {"id": 1, "order_id": 2}),
    ],
)
def test_the_order_of_each_topic_of_shopify_is_found(tmp_path: Path, topic: str, body: dict[str, Any]) -> None:
    source = made.webhook(tmp_path, f'{SHOPIFY}\nevents = ["orders/*", "{topic}"]')

    found = of_shopify(source, body, topic)

    assert found is not None
    assert [each.order_id for each in found.announcements] == ["2"]
    # Only the time of the order itself is a version.
    is_order = topic == "orders/create"
    version = datetime(2026, 11, 28, 10, tzinfo=UTC) if is_order else UNKNOWN_VERSION
    assert found.announcements[0].expected_version == version


@pytest.mark.parametrize(
    ("topic", "body"),
    [
        ("order.updated", {"id": 727, "date_modified_gmt": "2026-11-28T10:00:00"}),
        ("order.updated", {"order": {"id": 727, "status": "completed"}}),
        ("action.woocommerce_order_status_completed", {"action": "woocommerce_order_status_completed", "arg": 727}),
        ("action.woocommerce_payment_complete", {"action": "woocommerce_payment_complete", "arg": 727}),
    ],
    ids=["version 3", "legacy", "status", "payment"],
)
def test_the_order_of_each_payload_of_woocommerce_is_found(
    woocommerce: Webhook, topic: str, body: dict[str, Any]
) -> None:
    sent = json.dumps(body).encode()

    found = read_webhook(woocommerce, made.headers(made.woocommerce(sent, topic=topic)), sent, NOW)

    assert found is not None
    assert [each.order_id for each in found.announcements] == ["727"]
    version = datetime(2026, 11, 28, 10, tzinfo=UTC) if "id" in body else UNKNOWN_VERSION
    assert found.announcements[0].expected_version == version


def test_the_body_of_an_event_that_is_not_the_order_is_no_document(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, f'{SHOPIFY}\ndocument = "$"')

    edited = of_shopify(source, {"order_edit": {"id": 1, "order_id": 2}}, "orders/edited")
    updated = of_shopify(source, {"id": 2, "total_price": "1.00"}, "orders/updated")

    assert edited is not None
    assert updated is not None
    assert (edited.announcements[0].document, edited.announcements[0].order_id) == (None, "2")
    assert updated.announcements[0].document == b'{"id": 2, "total_price": "1.00"}'


@pytest.mark.parametrize(
    ("declared", "event"),
    [
        ('profile = "shopify"\nevents = ["orders/*", "products/update"]', "products/update"),
        ('profile = "shopify"\nevents = ["*"]', "*"),
        ('profile = "shopify"\nevents = ["orders/delete"]', "orders/delete"),
        ('profile = "woocommerce"\nevents = ["product.*"]', "product.*"),
        ('profile = "bigcommerce"\nevents = ["store/cart/*"]', "store/cart/*"),
        ('profile = "bigcommerce"\nevents = ["store/order/transaction/*"]', "store/order/transaction/*"),
    ],
)
def test_an_event_whose_order_the_profile_cannot_find_is_rejected(tmp_path: Path, declared: str, event: str) -> None:
    with pytest.raises(WebhookError, match="order_id") as caught:
        made.webhook(tmp_path, declared)

    assert repr(event) in caught.value.problem
    assert caught.value.keys[:3] == ("sources", "shop", "events")


def test_a_source_can_say_which_events_are_orders(tmp_path: Path) -> None:
    source = made.webhook(
        tmp_path, f'{SHOPIFY}\nevents = ["*"]\nignore = ["app/*", "orders/delete"]\norder_id = "order_id"'
    )

    assert of_shopify(source, {"order_id": 7}, "refunds/create") is not None
    assert of_shopify(source, {"order_id": 7}, "app/uninstalled") is None
    assert of_shopify(source, {"order_id": 7}, "orders/delete") is None


def test_an_event_may_be_in_the_body(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, STRIPE)
    session = {"id": "evt_1", "type": "checkout.session.completed", "data": {"object": {"metadata": {"order": "A-1"}}}}

    def read(document: dict[str, Any]) -> ReceivedOrders | None:
        body = json.dumps(document).encode()
        return read_webhook(source, made.headers(made.stripe(body)), body, NOW)

    announced = read(session)
    assert announced is not None
    assert (announced.announcements[0].order_id, announced.idempotency_key) == ("A-1", "webhook:shop:evt_1")
    assert read(session | {"type": "invoice.paid"}) is None


def test_without_a_name_the_event_is_refused_and_the_place_is_told(shop: Webhook) -> None:
    body = b'{"id": 1}'
    given = made.shopify(body)
    del given["X-Shopify-Topic"]

    with pytest.raises(Refused, match="X-Shopify-Topic"):
        read_webhook(shop, made.headers(given), body, NOW)


def test_only_the_unsigned_ping_of_woocommerce_is_acknowledged(woocommerce: Webhook, shop: Webhook) -> None:
    ping, unsigned = b"webhook_id=12", made.headers({})
    forged = made.headers(made.woocommerce(ping, secret="another"))

    assert read_webhook(woocommerce, unsigned, ping, NOW) is None
    for source, headers, body in (
        (woocommerce, unsigned, b"webhook_id=1&a=2"),
        (woocommerce, unsigned, b"{}"),
        (woocommerce, forged, ping),
        (shop, unsigned, ping),
    ):
        with pytest.raises(Refused, match="no signature"):
            read_webhook(source, headers, body, NOW)


def test_deleted_orders_of_woocommerce_are_ignored(woocommerce: Webhook) -> None:
    body = b'{"id":727}'

    found = [
        read_webhook(woocommerce, made.headers(made.woocommerce(body, topic=topic)), body, NOW)
        for topic in ("order.deleted", "order.restored", "product.updated")
    ]

    assert [announced is not None for announced in found] == [False, True, False]


# -- the ID of the order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "order_id"),
    [
        (b'{"id": 820982911946154509}', "820982911946154509"),
        (b'{"id": 98209829119461545089820982911946154508 }', "98209829119461545089820982911946154508"),
        (b'{"id": "000000012"}', "000000012"),
        (b'\xef\xbb\xbf {"id": 1}\n', "1"),
        (b'{"id": 1, "id": 2}', "2"),
        (b'{"id": "\\u0041-1"}', "A-1"),
    ],
)
def test_an_id_is_taken_as_it_is_written(shop: Webhook, body: bytes, order_id: str) -> None:
    announced = of_shopify(shop, body)

    assert announced is not None
    assert announced.announcements[0].order_id == order_id
    assert announced.announcements[0].origin == "webhook:shop"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{}", "no_order_id"),
        (b'{"id": null}', "no_order_id"),
        (b'{"id": true}', "no_order_id"),
        (b'{"id": 1.0}', "no_order_id"),
        (b'{"id": {"id": 1}}', "no_order_id"),
        (b'{"id": [1]}', "no_order_id"),
        (b"[1]", "no_order_id"),
        (b'{"id": "%s"}' % (b"x" * 2_000), "no_order_id"),
        (b'{"id": " a"}', "invalid_order_id"),
        (b'{"id": ""}', "invalid_order_id"),
        (b'{"id": ".."}', "invalid_order_id"),
        (b'{"id": "a\\nb"}', "invalid_order_id"),
        (b'{"id": "%s"}' % (b"9" * 129), "invalid_order_id"),
        (b'{"id": "\\u0000"}', "invalid_order_id"),
        (b'{"id": "\\ud800"}', "invalid_order_id"),
        (b'{"id": 1', "invalid_json"),
        (b'{"id": tru}', "invalid_json"),
        (b'{"id": "\xff"}', "invalid_json"),
        (b"id=1", "invalid_json"),
        (b'"1"', "invalid_json"),
        (b"1", "invalid_json"),
        (b"", "invalid_json"),
        (b"[" * 500_000 + b"]" * 500_000, "invalid_json"),
        (b'{"id":' * 500_000, "invalid_json"),
    ],
)
def test_a_body_without_a_usable_id_is_refused_and_nothing_of_it_is_told(shop: Webhook, body: bytes, code: str) -> None:
    refused = refusal(shop, body)

    assert refused.code == code
    assert refused.detail in {
        "there is no ID of an order: id",
        "what should be the ID of an order is none: id",
        "the body is not a JSON object or list in UTF-8",
    }


def test_an_id_may_be_in_a_signed_header_and_have_a_prefix(tmp_path: Path) -> None:
    signature = 'signature = { header = "X-Signature", signed = "{id}.{body}", id_header = "X-Order" }'
    declared = f'order_id = {{ header = "X-Order" }}\nremove_prefix = "gid://shopify/Order/"\n{signature}'
    source = made.webhook(tmp_path, f'profile = "hmac"\n{declared}', SECRET)
    order = "gid://shopify/Order/5"
    given = {"X-Order": order, "X-Signature": made.digest(SECRET.encode(), f"{order}.{{}}".encode()).hex()}

    announced = read_webhook(source, made.headers(given), b"{}", NOW)

    assert announced is not None
    assert announced.announcements[0].order_id == "5"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a", '{"b": [{"c d": 1.50}, null]}'),
        ("a.b[0]", '{"c d": 1.50}'),
        ('a.b[0]."c d"', "1.50"),
        ('$.a.b[0]."c d"', "1.50"),
        ("a.b[1]", None),
        ("a.b[2]", None),
        ("a.b.c", None),
        ("a[0]", None),
        ("b", None),
        ("$", '{"a": {"b": [{"c d": 1.50}, null]}}'),
    ],
)
def test_a_path_leads_to_the_text_in_the_body(path: str, found: str | None) -> None:
    body = b'{"a": {"b": [{"c d": 1.50}, null]}}'

    assert compile_path(path).find(body) == (None if found is None else found.encode())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=20,
    ).filter(lambda value: isinstance(value, dict | list))
)
def test_no_document_makes_a_path_fail(document: Any) -> None:
    body = json.dumps(document).encode()

    for path in ("a", "[0]", "[0].a", "a[0]", "a.b.c"):
        found = compile_path(path).find(body)
        assert found is None or json.loads(found) is not None


# -- the document -----------------------------------------------------------------------------------------------------


def test_the_document_is_pushed_as_it_was_sent(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, f'{SHOPIFY}\norder_id = "data.id"\ndocument = "data"')

    announced = of_shopify(source, b'{"data": {"id": 1, "total": 10.00,  "big": 123456789012345678901} }')

    assert announced is not None
    assert announced.announcements[0].document == b'{"id": 1, "total": 10.00,  "big": 123456789012345678901}'


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_whole_body_is_pushed_uncleaned_so_that_the_worker_counts_it(tmp_path: Path, mark: bytes) -> None:
    source = made.webhook(tmp_path, SHOPIFY + '\ndocument = "$"')
    body = mark + b'{"id": 7, "note": "x\\ud83d"}'

    received = of_shopify(source, body)

    assert received is not None
    assert [(each.order_id, each.document) for each in received.announcements] == [("7", body)]


def test_without_a_document_the_order_is_announced_to_be_fetched(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, f'{SHOPIFY}\ndocument = "order"')

    announced = of_shopify(source, {"id": 1, "order": None})

    assert announced is not None
    assert announced.announcements[0].document is None


@pytest.mark.parametrize("order", [[], "x", 1])
def test_a_document_that_is_no_object_is_refused(tmp_path: Path, order: object) -> None:
    source = made.webhook(tmp_path, f'{SHOPIFY}\ndocument = "order"')

    assert refusal(source, {"id": 1, "order": order}).code == "invalid_document"


def test_a_document_that_is_too_large_is_refused(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, f'{SHOPIFY}\ndocument = "$"')

    assert refusal(source, {"id": 1, "note": "x" * 5 * 1024 * 1024}).code == "invalid_document"


# -- the ID of the delivery -------------------------------------------------------------------------------------------


def key_of(announced: ReceivedOrders | None) -> str:
    assert announced is not None
    assert announced.idempotency_key is not None
    return announced.idempotency_key


def test_deliveries_of_one_event_have_one_key(shop: Webhook) -> None:
    first, again, other = (key_of(of_shopify(shop, {"id": 1}, webhook_id=name)) for name in ("w-1", "w-1", "w-2"))

    assert first == again
    assert first.startswith("webhook:shop:w-1:")
    assert first != other


def test_an_id_that_is_not_signed_does_not_keep_out_another_body(shop: Webhook) -> None:
    old, new = (key_of(of_shopify(shop, {"id": 1, "total": total})) for total in ("1.00", "2.00"))

    assert old != new


def test_an_id_that_is_signed_is_the_key(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, 'profile = "standard"\norder_id = "id"', STANDARD_SECRET)

    keys = {
        key_of(read_webhook(source, made.headers(made.standard(body)), body, NOW))
        for body in (b'{"type":"order.a","id":1}', b'{"type":"order.a","id":1,"attempt":2}')
    }

    assert keys == {"webhook:shop:msg_1"}


@pytest.mark.parametrize("webhook_id", ["x" * 500, "a b", "ä\x1f0", "\udcff"])
def test_an_unusual_delivery_id_is_still_a_valid_key(shop: Webhook, webhook_id: str) -> None:
    key = key_of(of_shopify(shop, {"id": 1}, webhook_id=webhook_id))

    assert len(key) == len("webhook:shop:") + 64 + 1 + 16


def test_without_a_delivery_id_there_is_no_key(shop: Webhook) -> None:
    announced = of_shopify(shop, {"id": 1}, webhook_id="")

    assert announced is not None
    assert announced.idempotency_key is None


def test_equal_bodies_of_woocommerce_are_one_event(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, 'profile = "woocommerce"', SECRET)

    def key(body: bytes, topic: str) -> str | None:
        announced = read_webhook(source, made.headers(made.woocommerce(body, topic=topic)), body, NOW)
        return announced.idempotency_key if announced is not None else None

    assert key(b'{"id":1}', "order.created") == key(b'{"id":1}', "order.updated")
    assert key(b'{"id":1}', "order.created") != key(b'{"id":1,"total":"2"}', "order.updated")


def test_the_key_of_one_source_is_not_that_of_another(tmp_path: Path) -> None:
    keys = {key_of(of_shopify(made.webhook(tmp_path, SHOPIFY, name=name), {"id": 1})) for name in ("one", "two")}

    assert len(keys) == 2


# -- several orders ---------------------------------------------------------------------------------------------------

SEVERAL = 'profile = "standard"\norder_ids = "events[].order.id"'


def of_standard(source: Webhook, document: Any) -> ReceivedOrders | None:
    body = json.dumps(document).encode()
    return read_webhook(source, made.headers(made.standard(body)), body, NOW)


def ids_of(received: ReceivedOrders | None) -> list[str]:
    return [] if received is None else [announcement.order_id for announcement in received.announcements]


def test_one_webhook_announces_several_orders(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, f'{SEVERAL}\nremove_prefix = "o-"', secret=STANDARD_SECRET)
    events = [{"order": {"id": "o-1"}}, {"order": {"id": 2}}, {"order": {}}, {"customer": 1}, {"order": {"id": "1"}}]

    received = of_standard(source, {"type": "order.batch", "events": events})

    assert ids_of(received) == ["1", "2"]
    assert received is not None
    assert (received.idempotency_key, received.problem) == ("webhook:shop:msg_1", None)


def test_an_order_with_an_invalid_id_does_not_keep_the_others_out(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, SEVERAL, secret=STANDARD_SECRET)
    document = {"type": "order.batch", "events": [{"order": {"id": " "}}, {"order": {"id": "2"}}]}

    received = of_standard(source, document)

    assert ids_of(received) == ["2"]
    assert received is not None
    assert received.problem is not None
    assert received.problem.code == "invalid_order_id"


def test_each_event_of_a_list_may_have_its_own_name(tmp_path: Path) -> None:
    declared = 'profile = "standard"\nevent = "$[].type"\norder_ids = "$[].id"'
    source = made.webhook(tmp_path, declared, secret=STANDARD_SECRET)
    orders = [
        {"type": "order.created", "id": 1},
        {"type": "customer.created", "id": 2},
        {"type": "order.deleted", "id": 3},
    ]

    assert ids_of(of_standard(source, orders)) == ["1"]
    assert of_standard(source, orders[1:]) is None


@pytest.mark.parametrize("events", [None, [], {}, [{}], [1, None, []], "x"])
def test_a_list_without_an_order_is_refused(tmp_path: Path, events: object) -> None:
    source = made.webhook(tmp_path, SEVERAL, secret=STANDARD_SECRET)

    with pytest.raises(Refused) as refused:
        of_standard(source, {"type": "order.batch", "events": events})

    assert refused.value.code == "no_order_id"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ('order_ids = "events"', "after the list"),
        ('order_ids = "events[].a[].b"', "is not a path"),
        ('order_ids = "events[].id"\norder_id = "id"', "for webhooks with one order"),
        ('order_ids = "events[].id"\ndocument = "$"', "for webhooks with one order"),
        ('order_ids = "events[].id"\nevent = "others[].type"', "the same list"),
        ('order_id = "id"\nevent = "events[].type"', "the same list"),
    ],
)
def test_a_list_that_cannot_be_read_is_rejected(tmp_path: Path, declared: str, message: str) -> None:
    with pytest.raises(WebhookError, match=message):
        made.webhook(tmp_path, f'profile = "standard"\n{declared}', secret=STANDARD_SECRET)


# -- tests of the sender ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order_id", "more"),
    [
        (820982911946154508, {}),
        (820982911946154508, {"X-Shopify-Test": "true"}),
        (1, {"X-Shopify-Test": "true"}),
        (1, {"Shopify-Test": "True"}),
    ],
)
def test_shopifys_test_notification_is_acknowledged(shop: Webhook, order_id: int, more: dict[str, str]) -> None:
    body = json.dumps({"id": order_id}).encode()

    assert read_webhook(shop, made.headers({**made.shopify(body), **more}), body, NOW) is None


def test_a_test_notification_needs_a_signature(shop: Webhook) -> None:
    with pytest.raises(Refused):
        read_webhook(shop, made.headers({"X-Shopify-Test": "true", "X-Shopify-Topic": "orders/create"}), b"{}", NOW)


def test_an_order_that_is_no_test_is_enqueued(shop: Webhook) -> None:
    body = b'{"id": 1, "test": true}'
    given = {**made.shopify(body), "X-Shopify-Test": "false"}

    assert ids_of(read_webhook(shop, made.headers(given), body, NOW)) == ["1"]


# -- the time of the event --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-03-29T18:00:27.877041743Z", datetime(2026, 3, 29, 18, 0, 27, 877041, UTC)),
        ("2026-03-29T20:00:27.5+02:00", datetime(2026, 3, 29, 18, 0, 27, 500000, UTC)),
        ("2026-03-29t18:00:27.877z", datetime(2026, 3, 29, 18, 0, 27, 877000, UTC)),
        ("1774807227877", datetime(2026, 3, 29, 18, 0, 27, 877000, UTC)),
        ("2026-03-29T18:00:27Z", None),
        ("1774807227", None),
        ("2026-03-29T18:00:27.877", None),
        ("2026-13-29T18:00:27.877Z", None),
        ("", None),
    ],
)
def test_a_time_of_an_event_needs_a_fraction_of_a_second(text: str, found: datetime | None) -> None:
    assert read_event_time(text) == found


def test_a_pushed_document_has_the_time_of_its_event(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, f'{SHOPIFY}\ndocument = "$"')
    body = b'{"id": 1}'
    given = {**made.shopify(body), "X-Shopify-Triggered-At": "2026-03-29T18:00:27.877041743Z"}

    received = read_webhook(source, made.headers(given), body, NOW)

    assert received is not None
    assert received.announcements[0].fields()[b"event_at"] == b"1774807227877041"


def test_an_order_without_a_document_has_no_time_of_an_event(shop: Webhook) -> None:
    body = b'{"id": 1}'
    given = {**made.shopify(body), "X-Shopify-Triggered-At": "2026-03-29T18:00:27.877041743Z"}

    received = read_webhook(shop, made.headers(given), body, NOW)

    assert received is not None
    assert b"event_at" not in received.announcements[0].fields()


@pytest.mark.parametrize("profile", ["svix", "webhook"])
def test_svix_headers_are_those_of_standard_webhooks(tmp_path: Path, profile: str) -> None:
    source = made.webhook(tmp_path, 'profile = "standard"\norder_id = "id"', secret=STANDARD_SECRET)
    body = b'{"type": "order.created", "id": 7}'
    given = {name.replace("webhook-", f"{profile}-"): value for name, value in made.standard(body).items()}

    received = read_webhook(source, made.headers(given), body, NOW)

    assert ids_of(received) == ["7"]
    assert key_of(received) == "webhook:shop:msg_1"
