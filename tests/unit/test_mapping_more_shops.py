"""The mappings of further shops, on documents with every peculiarity that their documentation names."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from ingest.domain.orders.order import Order
from ingest.mapping.load import load_mapping

SAMPLES = Path(__file__).parents[1] / "mapping_samples"
Change = Callable[[Any], None]


def unchanged(_: Any) -> None:
    pass


def mapped(shop: str, change: Change = unchanged) -> Order:
    """The order of the sample, after a change of its document."""
    document = msgspec.json.decode((SAMPLES / f"{shop}.json").read_bytes())
    change(document.get("order", document))
    return load_mapping(shop).decode(msgspec.json.encode(document), None)


def lines(order: Order) -> list[tuple[str, str, str]]:
    return [(line.sku, str(line.quantity), f"{line.unit_price:f}") for line in order.lines]


def difference(order: Order) -> object:
    return order.attributes.get("total_difference")


def money(amount: str) -> dict[str, str]:
    return {"amount": amount, "currencyCode": "GBP"}


# -- Amazon 2026-01-01 ------------------------------------------------------------------------------------------------

AMAZON = "amazon-2026-01-01"


def test_the_fields_of_an_amazon_order() -> None:
    order = mapped(AMAZON)

    assert (order.id, order.status, order.currency, order.country) == (
        "202-1234567-8901234",
        "PARTIALLY_SHIPPED",
        "GBP",
        "GB",
    )
    assert order.placed_at == datetime(2026, 3, 1, 9, 15, tzinfo=UTC)
    assert order.updated_at == datetime(2026, 3, 1, 16, 30, tzinfo=UTC)
    assert order.attributes["seller_order_id"] == "UK-1"
    assert order.attributes["order_item_ids"] == ["05015851154158", "05015851154159", "05015851154160"]


def test_the_proceeds_of_the_items_are_lines_that_add_up_to_the_grand_total() -> None:
    order = mapped(AMAZON)

    assert lines(order) == [
        ("SPEAKER-3", "3", "29.99"),
        # Without a SKU of the seller, and with a price that is not a whole number of pence.
        ("B07XJ8C8F5", "3", "3.333333"),
        ("B07XJ8C8F6", "0", "0"),
        ("SHIPPING", "1", "10.00"),
        ("GIFT_WRAP", "1", "2.50"),
        ("DISCOUNT", "1", "-10.00"),
        ("ROUNDING", "1", "0.000001"),
        ("TAX", "1", "4.00"),
        ("DELIVERY_TIP", "1", "5.00"),
    ]
    assert order.total == Decimal("111.47")
    assert difference(order) is None


def test_a_discount_reduces_the_total_whether_or_not_it_is_written_as_a_negative_amount() -> None:
    def positive(order: Any) -> None:
        order["orderItems"][0]["proceeds"]["breakdowns"][3]["subtotal"] = money("10.00")

    assert mapped(AMAZON, positive).total == Decimal("111.47")


def test_tax_that_the_prices_contain_is_no_further_line() -> None:
    def included(order: Any) -> None:
        order["proceeds"] = {"grandTotal": money("102.47")}

    order = mapped(AMAZON, included)

    assert "TAX" not in {line.sku for line in order.lines}
    assert difference(order) is None


def test_a_tip_that_is_pending_may_be_missing_in_the_total() -> None:
    def pending(order: Any) -> None:
        order["proceeds"]["grandTotal"] = money("106.47")

    order = mapped(AMAZON, pending)

    assert [line.sku for line in order.lines][-1] == "TAX"
    assert difference(order) is None


def test_a_difference_that_nothing_explains_is_an_attribute() -> None:
    def unexplained(order: Any) -> None:
        order["proceeds"]["grandTotal"] = money("115.00")

    assert difference(mapped(AMAZON, unexplained)) == "12.53"


def test_what_a_cancelled_item_still_costs_is_a_line() -> None:
    def charged(order: Any) -> None:
        order["orderItems"][2]["proceeds"] = {"breakdowns": [{"type": "ITEM", "subtotal": money("3.00")}]}
        order["proceeds"]["grandTotal"] = money("114.47")

    order = mapped(AMAZON, charged)

    assert lines(order)[2:4] == [("B07XJ8C8F6", "0", "0"), ("B07XJ8C8F6", "1", "3.00")]
    assert difference(order) is None


def test_a_pending_amazon_order_has_no_amounts_and_its_marketplace_may_be_unknown() -> None:
    def pending(order: Any) -> None:
        order["fulfillment"] = {"fulfillmentStatus": "PENDING"}
        order["salesChannel"]["marketplaceId"] = "ANEWMARKET"
        del order["proceeds"], order["recipient"], order["packages"]
        for item in order["orderItems"]:
            item.pop("proceeds", None)
            item["product"].pop("price", None)

    order = mapped(AMAZON, pending)

    assert (order.status, order.currency, order.country, order.total) == ("PENDING", "XXX", None, Decimal(0))
    assert [line.sku for line in order.lines] == ["SPEAKER-3", "B07XJ8C8F5", "B07XJ8C8F6"]


def test_the_elements_of_amazons_list_have_no_envelope() -> None:
    document = msgspec.json.decode((SAMPLES / f"{AMAZON}.json").read_bytes())

    order = load_mapping(AMAZON).decode(msgspec.json.encode(document["order"]), None)

    assert order == mapped(AMAZON)


# -- Magento ----------------------------------------------------------------------------------------------------------


def test_the_fields_of_a_magento_order() -> None:
    order = mapped("magento")

    assert (order.id, order.status, order.currency, order.customer_id, order.country) == (
        "12",
        "processing",
        "EUR",
        "7",
        "DE",
    )
    # Written without a zone.
    assert order.placed_at == datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
    assert order.updated_at == datetime(2026, 3, 1, 10, 5, tzinfo=UTC)
    assert order.attributes["increment_id"] == "000000012"
    assert order.attributes["child_skus"] == ["SHIRT-RED", "KIT-A", "KIT-B"]
    assert order.attributes["refunded"] == Decimal("20.5")


def test_variants_and_parts_of_bundles_count_once_and_everything_adds_up_to_the_grand_total() -> None:
    order = mapped("magento")

    assert lines(order) == [
        ("SHIRT-RED", "2", "20"),
        ("KIT", "1", "100"),
        # By the meter.
        ("ROPE", "2.5", "10"),
        ("FEE", "1", "1.5"),
        ("SHIPPING", "1", "5.0"),
        ("DISCOUNT", "1", "-16.5"),
        ("DISCOUNT", "1", "1.23"),
        ("TAX", "1", "28.17"),
        ("GIFT_WRAP", "1", "4.0000"),
        ("GIFT_CARD", "1", "-10"),
        ("STORE_CREDIT", "1", "-2.5"),
        ("REWARD_POINTS", "1", "-1.0"),
    ]
    assert order.total == Decimal("174.9")
    assert difference(order) is None


def test_a_magento_order_of_a_guest_with_nothing_to_ship() -> None:
    def virtual(order: Any) -> None:
        del order["customer_id"]
        order["extension_attributes"] = []  # PHP's empty object

    order = mapped("magento", virtual)

    assert (order.customer_id, order.country) == (None, "FR")
    # Without the gift wrapping, gift cards, credit and points, whose sum is -9.5.
    assert difference(order) == "-9.5"


# -- BigCommerce ------------------------------------------------------------------------------------------------------


def test_the_fields_of_a_bigcommerce_order() -> None:
    order = mapped("bigcommerce")

    assert (order.id, order.status, order.currency, order.customer_id, order.country) == (
        "218",
        "Awaiting Payment",
        # The currency in which the buyer pays, not the storefront's.
        "EUR",
        "11",
        # Of the shipping address, which takes a separate request.
        "DE",
    )
    assert order.placed_at == datetime(2019, 3, 5, 21, 40, 11, tzinfo=UTC)
    assert order.updated_at == datetime(2019, 3, 11, 15, 17, 25, tzinfo=UTC)
    assert order.attributes["coupons"] == ["S2549JM0Y"]
    assert order.attributes["refunded_quantities"] == [1, 0, 0, 0]
    # Empty texts are no values.
    assert not {"shipped_at", "external_id"} & {*order.attributes}


def test_products_with_tax_and_all_charges_and_discounts_add_up_to_the_total() -> None:
    order = mapped("bigcommerce")

    assert lines(order) == [
        ("S-ORAN", "3", "10.8700"),
        ("product-86", "1", "35.2300"),
        ("ABS", "1", "0.0000"),
        # Removed from the order.
        ("line-68", "0", "4.0000"),
        ("SHIPPING", "1", "12.0000"),
        ("HANDLING", "1", "1.5000"),
        ("GIFT_WRAP", "1", "2.5000"),
        ("FEE", "1", "12.3000"),
        ("DISCOUNT", "1", "-5.0000"),
        ("DISCOUNT", "1", "-5.0000"),
    ]
    assert order.total == Decimal("86.14")
    assert difference(order) is None


def test_a_gift_certificate_is_a_line_only_if_it_reduces_the_total() -> None:
    order = mapped("bigcommerce", lambda document: document.update(total_inc_tax="81.1400"))

    assert ("GIFT_CERTIFICATE", "1", "-5.0000") in lines(order)
    assert difference(order) is None


def test_a_bigcommerce_order_of_a_guest_with_nothing_to_ship() -> None:
    def digital(document: Any) -> None:
        document["customer_id"] = 0
        document["parts"]["shipping_addresses"] = []
        del document["fees"]

    order = mapped("bigcommerce", digital)

    assert (order.customer_id, order.country) == (None, "US")
    assert difference(order) == "12.3000"
