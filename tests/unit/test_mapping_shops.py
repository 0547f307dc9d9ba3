"""The mappings that come with the service, field by field, on documents with every peculiarity of their shops."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ingest.domain.orders.clean_json import clean_json
from ingest.domain.orders.order import InvalidDocument, Order
from ingest.mapping.load import load_mapping, ready_made_names

SAMPLES = Path(__file__).parents[1] / "mapping_samples"
NEW_YORK = timezone(timedelta(hours=-5))


def sample(shop: str) -> bytes:
    return (SAMPLES / f"{shop}.json").read_bytes()


def mapped(shop: str, order_id: str | None = None) -> Order:
    return load_mapping(shop).decode(sample(shop), order_id)


def changed(shop: str, **changes: Any) -> Order:
    """The sample with some values of the order changed. A change to None stands for null."""
    document = msgspec.json.decode(sample(shop))
    {"shopify-rest": document.get("order"), "amazon": document.get("payload")}.get(shop, document).update(changes)
    return load_mapping(shop).decode(msgspec.json.encode(document), None)


def lines(order: Order) -> list[tuple[str, object, str, str | None]]:
    return [(line.sku, line.quantity, str(line.unit_price), line.description) for line in order.lines]


def attributes(order: Order) -> Any:
    return msgspec.json.decode(order.attributes_json())


def test_the_mappings_that_come_with_the_service_and_the_earlier_name_of_one() -> None:
    assert {"amazon", "amazon-2026-01-01", "bigcommerce", "magento", "shopify-rest", "woocommerce"} <= {
        *ready_made_names()
    }
    assert load_mapping("shopify").decode(sample("shopify-rest"), None) == mapped("shopify-rest")


def test_the_fields_of_a_shopify_order() -> None:
    order = mapped("shopify-rest", "9007199254740993")

    # More than a double can hold.
    assert order.id == "9007199254740993"
    # The time of the sale, with the offset of the shop.
    assert order.placed_at == datetime(2025, 1, 23, 23, 10, 16, tzinfo=NEW_YORK)
    assert order.updated_at == datetime(2025, 2, 1, 8, 0, tzinfo=NEW_YORK)
    # A refund is not a cancellation, and a closed order is not cancelled either.
    assert order.status == "refunded/unfulfilled"
    # The shop's currency, in which the amounts are, and not the buyer's.
    assert order.currency == "HKD"
    assert order.customer_id == "207119551"
    assert order.country == "HK"


def test_the_lines_of_a_shopify_order_add_up_to_its_total() -> None:
    order = mapped("shopify-rest")

    assert lines(order) == [
        # Removed later on: the line stays.
        ("IPOD2008GREEN", 1, "199.00", "IPod Nano - green"),
        # An empty SKU, and a null SKU without a variant.
        ("variant-49148385", 3, "3.00", "Sticker"),
        ("line-703073504", 2, "0.00", "Custom item"),
        # Discounts are in the allocations. `total_discount` is 0.00.
        ("DISCOUNT", 1, "-15.00", None),
        ("DISCOUNT", 1, "-4.10", None),
        ("SHIPPING", 1, "20.00", "Free Shipping"),
        ("DISCOUNT", 1, "-5.00", None),
        ("TAX", 1, "11.90", "State Tax"),
    ]
    assert order.total == Decimal("215.80")


def test_the_attributes_of_a_shopify_order() -> None:
    assert attributes(mapped("shopify-rest")) == {
        "name": "#1001",
        "total_price": "215.80",
        "current_total_price": "20.13",
        "financial_status": "refunded",
        "presentment_currency": "EUR",
        "test": False,
        "note_attributes": [{"name": "gift_note", "value": "For you"}],
        "current_quantities": [0, 3, 2],
        # A JSON number, digit by digit, where every price is a text.
        "refunded": ["195.66", "0.01"],
    }


def test_the_payload_of_a_shopify_webhook_has_no_envelope() -> None:
    payload = msgspec.json.encode(msgspec.json.decode(sample("shopify-rest"))["order"])

    order = load_mapping("shopify-rest").decode(payload, "9007199254740993")

    assert order == mapped("shopify-rest")


def test_shopify_orders_without_what_is_optional() -> None:
    order = changed(
        "shopify-rest",
        customer=None,
        shipping_address=None,
        processed_at=None,
        cancelled_at="2025-01-24T00:00:00-05:00",
        taxes_included=True,
        financial_status=None,
        tags="vip, b2b",
    )

    assert (order.customer_id, order.country, order.status) == (None, "US", "cancelled")
    assert order.placed_at == datetime(2025, 1, 23, 23, 10, 17, tzinfo=NEW_YORK)
    assert "TAX" not in {line.sku for line in order.lines}
    assert (order.attributes["tags"], "financial_status" in order.attributes) == ("vip, b2b", False)
    assert changed("shopify-rest", financial_status=None).status == "unknown/unfulfilled"
    assert changed("shopify-rest", shipping_address=None, billing_address=None).country is None


def test_the_fields_of_a_woocommerce_order() -> None:
    order = mapped("woocommerce", "727")

    assert (order.id, order.status, order.currency) == ("727", "completed", "USD")
    # UTC, written without a zone.
    assert order.placed_at == datetime(2017, 3, 22, 19, 28, 2, tzinfo=UTC)
    assert order.updated_at == datetime(2017, 3, 22, 19, 28, 8, tzinfo=UTC)
    # A guest, without shipping.
    assert (order.customer_id, order.country) == (None, "US")


def test_the_lines_of_a_woocommerce_order() -> None:
    order = mapped("woocommerce")

    assert lines(order) == [
        # From the line's total: the price that the API computes has the error of a binary fraction.
        ("SHIP-1", 3, "3.333333", "Ship Your Idea \N{EN DASH} Color & Size"),
        ("product-87", 2, "3.00", "Woo Album #2"),
        # A product that was deleted, and a quantity that nothing can be divided by.
        ("line-317", 0, "0", "Deleted"),
        ("CABLE", Decimal("2.5"), "1.2", "Cable, by the metre"),
        ("SHIPPING", 1, "10.00", "Flat Rate"),
        ("FEE", 1, "1.00", "Gift wrap"),
        ("TAX", 1, "1.35", None),
        # A third of a cent that the first price has lost.
        ("ROUNDING", 1, "0.000001", None),
    ]
    assert order.total == Decimal("31.35")


def test_the_attributes_of_a_woocommerce_order() -> None:
    assert attributes(mapped("woocommerce")) == {
        "number": "WEB-0727",
        "total": "31.35",
        "discount_total": "1.50",
        "line_totals": ["10.00", "6.00", "0.00", "3.00"],
        "prices_include_tax": False,
        "paid_at": "2017-03-22T19:28:08Z",
        "coupons": ["spring"],
        "refunded": ["-10.00"],
        # Internal keys are left out, values may be of any type.
        "meta_data": [{"key": "delivery", "value": {"slot": [1, 2]}}],
    }


def test_what_php_makes_of_woocommerce_documents() -> None:
    # An empty associative array is [], and a byte order mark may precede the document.
    order = changed("woocommerce", shipping=[], customer_id=5, total_tax="0.00")
    marked = load_mapping("woocommerce").decode(clean_json(b"\xef\xbb\xbf" + sample("woocommerce")), "727")

    assert (order.country, order.customer_id) == ("US", "5")
    assert "TAX" not in {line.sku for line in order.lines}
    assert marked == mapped("woocommerce")


def test_the_fields_of_an_amazon_order() -> None:
    order = mapped("amazon", "902-1845936-5435065")

    assert (order.id, order.status, order.currency) == ("902-1845936-5435065", "Unshipped", "USD")
    assert order.placed_at == datetime(2024, 6, 1, 10, 20, 30, tzinfo=UTC)
    assert order.updated_at == datetime(2024, 6, 2, tzinfo=UTC)
    # There is no key of a buyer but an address, which is not stored.
    assert (order.customer_id, order.country) == (None, "US")


def test_the_lines_of_an_amazon_order() -> None:
    order = mapped("amazon")

    assert lines(order) == [
        # The price is of the whole line.
        ("CBA-OS1", 3, "8.663333", 'Samsung\'s "case"'),
        # No SKU, no title, and a cancelled item.
        ("B00551Q3CT", 0, "0", None),
        ("DISCOUNT", 1, "-1.00", None),
        ("SHIPPING", 1, "10.00", None),
        ("TAX", 1, "2.00", None),
        ("ROUNDING", 1, "0.000001", None),
    ]


def test_the_attributes_of_an_amazon_order() -> None:
    assert attributes(mapped("amazon")) == {
        "marketplace_id": "ATVPDKIKX0DER",
        "sales_channel": "Amazon.com",
        "fulfillment_channel": "MFN",
        "seller_order_id": "S-17",
        "is_prime": False,
        "total": "36.99",
        # Digits with a leading zero, and booleans as texts.
        "order_item_ids": ["05015851154158", "00015851154159"],
        "line_totals": ["25.99", "0.00"],
        "gifts": [True, False],
    }


def test_a_pending_amazon_order_has_neither_a_total_nor_prices() -> None:
    document = msgspec.json.decode(sample("amazon"))
    del document["payload"]["OrderTotal"], document["payload"]["ShippingAddress"]
    document["payload"] |= {"OrderStatus": "Pending", "MarketplaceId": "A1VC38T7YXB528"}
    document["parts"] = {"order_items": [{"ASIN": "B0", "OrderItemId": "1", "QuantityOrdered": 2}]}

    order = load_mapping("amazon").decode(msgspec.json.encode(document), None)

    # The currency is the marketplace's.
    assert (order.currency, order.country, lines(order)) == ("JPY", None, [("B0", 2, "0", None)])
    assert "line_totals" not in order.attributes


@pytest.mark.parametrize("shop", ["amazon", "shopify-rest", "woocommerce"])
def test_an_order_is_of_the_id_that_was_requested(shop: str) -> None:
    with pytest.raises(InvalidDocument, match="another order"):
        mapped(shop, "1")
