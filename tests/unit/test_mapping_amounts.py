"""Amounts of real orders that ready-made mappings once missed or counted twice, and values that only an attribute reads."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ingest.mapping.compiled.mapping import MappedDocument
from ingest.mapping.load import load_mapping, ready_made_names

SAMPLES = Path(__file__).parents[1] / "mapping_samples"
READY_MADE = Path(__file__).parents[2] / "ingest" / "mapping" / "ready_made"


def amazon(marketplace: str = "ATVPDKIKX0DER", total: str | None = "20.00", **item: Any) -> MappedDocument:
    money = {
        name: {"CurrencyCode": "USD", "Amount": value} if isinstance(value, str) else value
        for name, value in item.items()
    }
    order = {
        "AmazonOrderId": "902-1845936-5435065",
        "PurchaseDate": "2026-03-01T10:00:00Z",
        "OrderStatus": "Shipped",
        "MarketplaceId": marketplace,
    }
    if total is not None:
        order["OrderTotal"] = {"CurrencyCode": "USD", "Amount": total}  # type: ignore[assignment]
    items = [{"OrderItemId": "05", "ASIN": "B0", "QuantityOrdered": 2, "ItemPrice": {"Amount": "20.00"}} | money]
    return load_mapping("amazon").read(msgspec.json.encode({"payload": order, "parts": {"order_items": items}}), None)


def woocommerce(**values: Any) -> MappedDocument:
    item = {"id": 1, "name": "Cup", "quantity": 2, "total": "20.00", "sku": "CUP", "price": 10}
    order = {"id": 727, "status": "processing", "currency": "EUR", "date_created_gmt": "2026-03-01T10:00:00"}
    document = {**order, "total": "20.00", "total_tax": "0.00", "line_items": [item], "refunds": [], "meta_data": []}
    return load_mapping("woocommerce").read(msgspec.json.encode(document | values), None)


def shopify(**values: Any) -> MappedDocument:
    order = {"id": 5001, "created_at": "2026-03-01T10:00:00-05:00", "currency": "USD", "financial_status": "paid"}
    lines = [{"id": 9001, "sku": "MUG-1", "name": "Mug", "quantity": 2, "price": "10.00"}]
    document = {**order, "total_price": "20.00", "line_items": lines}
    return load_mapping("shopify-rest").read(msgspec.json.encode(document | values), None)


def money(amount: str) -> dict[str, Any]:
    return {"shop_money": {"amount": amount, "currency_code": "USD"}}


def lines(mapped: MappedDocument) -> list[tuple[str, str]]:
    assert mapped.total_difference is None
    return [(line.sku, f"{line.quantity} x {line.unit_price}") for line in mapped.order.lines]


def test_the_tax_of_a_european_order_of_amazon_is_in_its_prices() -> None:
    assert lines(amazon("A1PA6795UKMFR9", "20.00", ItemTax="3.19")) == [("B0", "2 x 10.00")]
    assert lines(amazon("ATVPDKIKX0DER", "21.60", ItemTax="1.60")) == [("B0", "2 x 10.00"), ("TAX", "1 x 1.60")]
    # A marketplace of which nothing is known may be either.
    assert lines(amazon("A0NEW", "20.00", ItemTax="3.19")) == [("B0", "2 x 10.00")]
    assert lines(amazon("A0NEW", "23.19", ItemTax="3.19")) == [("B0", "2 x 10.00"), ("TAX", "1 x 3.19")]


def test_shipping_of_amazon_has_a_discount_and_a_tax() -> None:
    shipping = {"ShippingPrice": "5.99", "ShippingDiscount": "5.99"}

    assert lines(amazon(total="20.00", **shipping))[1:] == [("SHIPPING", "1 x 5.99"), ("DISCOUNT", "1 x -5.99")]
    assert lines(amazon(total="25.40", ShippingPrice="5.00", ShippingTax="0.40"))[1:] == [
        ("SHIPPING", "1 x 5.00"),
        ("TAX", "1 x 0.40"),
    ]


def test_gift_wrapping_and_cash_on_delivery_of_amazon_are_lines() -> None:
    wrapping = {"GiftWrapPrice": {"Amount": "3.00"}, "GiftWrapTax": {"Amount": "0.24"}}

    mapped = amazon(total="26.24", BuyerInfo=wrapping, CODFee="4.00", CODFeeDiscount="1.00")

    assert lines(mapped)[1:] == [("GIFT-WRAP", "1 x 3.00"), ("FEE", "1 x 3.00"), ("TAX", "1 x 0.24")]


@pytest.mark.parametrize(
    ("marketplace", "currency"), [("A28R8C7NBKEWEA", "EUR"), ("AE08WJ6YKNBMC", "ZAR"), ("A0NEW", "XXX")]
)
def test_a_pending_order_of_any_marketplace_is_valid(marketplace: str, currency: str) -> None:
    mapped = amazon(marketplace, None, ItemPrice=None)

    assert mapped.order.currency == currency
    assert lines(mapped) == [("B0", "2 x 0")]


def test_no_ready_made_list_of_values_is_closed() -> None:
    def closed(value: Any, name: str) -> list[str]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        found = [place for key, child in inner for place in closed(child, f"{name}.{key}")]
        return [*found, name] if isinstance(value, dict) and "values" in value and "otherwise" not in value else found

    assert [
        place
        for name in ready_made_names()
        for place in closed(tomllib.loads((READY_MADE / f"{name}.toml").read_text(encoding="utf-8")), name)
    ] == []


def test_duties_and_additional_fees_of_shopify_are_lines() -> None:
    duty, fee = money("12.50"), money("0.28")
    at_line = [{"id": 9001, "sku": "MUG-1", "quantity": 2, "price": "10.00", "duties": [{"id": 1, **duty}]}]

    # After a return, the current amounts are lower than the original ones.
    assert lines(shopify(total_price="32.50", original_total_duties_set=duty, current_total_duties_set=money("0")))[
        1:
    ] == [("DUTY", "1 x 12.50")]
    assert lines(shopify(total_price="32.50", line_items=at_line))[1:] == [("DUTY", "1 x 12.50")]
    assert lines(shopify(total_price="32.50", line_items=at_line, original_total_duties_set=duty))[1:] == [
        ("DUTY", "1 x 12.50")
    ]
    assert lines(shopify(total_price="20.28", original_total_additional_fees_set=fee))[1:] == [("FEE", "1 x 0.28")]


def test_a_tip_of_shopify_is_counted_once() -> None:
    tip = {"id": 9002, "sku": None, "name": "Tip", "quantity": 1, "price": "3.00"}
    with_tip = [{"id": 9001, "sku": "MUG-1", "quantity": 2, "price": "10.00"}, tip]

    assert lines(shopify(total_price="23.00", total_tip_received="3.00", line_items=with_tip))[1:] == [
        ("line-9002", "1 x 3.00")
    ]
    assert lines(shopify(total_price="23.00", total_tip_received="3.00"))[1:] == [("TIP", "1 x 3.00")]


def test_discounts_of_shopify_that_are_not_allocated_are_lines() -> None:
    line = {"id": 9001, "sku": "MUG-1", "quantity": 2, "price": "10.00", "total_discount": "3.00"}
    shipping = [{"title": "Standard", "price": "5.00", "discounted_price": "4.00"}]

    assert lines(shopify(total_price="17.00", line_items=[line]))[1:] == [("DISCOUNT", "1 x -3.00")]
    assert lines(shopify(total_price="17.00", total_discounts="3.00"))[1:] == [("DISCOUNT", "1 x -3.00")]
    assert lines(shopify(total_price="24.00", shipping_lines=shipping))[1:] == [
        ("SHIPPING", "1 x 5.00"),
        ("DISCOUNT", "1 x -1.00"),
    ]


def test_an_amount_without_a_quantity_is_a_line() -> None:
    deposit = {"id": 1, "name": "Cup", "quantity": 0, "total": "5.00", "sku": "CUP", "price": 10}

    assert lines(woocommerce(line_items=[deposit], total="5.00")) == [("CUP", "0 x 0"), ("CUP", "1 x 5.00")]
    assert lines(amazon(total="5.00", QuantityOrdered=0, ItemPrice="5.00")) == [("B0", "0 x 0"), ("B0", "1 x 5.00")]


def test_values_that_only_an_attribute_reads_do_not_decide_about_an_order() -> None:
    odd: list[dict[str, Any]] = [
        {"id": 1, "key": "gift", "value": {"a": [1, True]}},
        {"id": 2, "key": None, "value": "x"},
        {"id": 3, "key": 7, "value": "x"},
        {"id": 4},
    ]

    mapped = woocommerce(meta_data=odd)

    assert mapped.omitted == []
    assert mapped.order.attributes["meta_data"] == [{"key": "gift", "value": odd[0]["value"]}]
    # PHP writes a list with gaps as an object.
    assert (
        str(woocommerce(refunds={"1": {"id": 5, "total": "-2.00"}}).order.attributes["refunded"])
        == "[Decimal('-2.00')]"
    )
    assert woocommerce(refunds="none").omitted == ["refunded: expected `array`, got `str` - at `$.refunds`"]
    assert woocommerce(customer_id={}).omitted == [
        "customer_id: expected `str` or `int`, got `object` - at `$.customer_id`"
    ]


def test_lines_in_a_php_list_with_gaps_are_lines() -> None:
    item = {"id": 1, "name": "Cup", "quantity": 2, "total": "20.00", "sku": "CUP", "price": 10}

    assert lines(woocommerce(line_items={"0": item, "2": {**item, "total": "0.00"}})) == [
        ("CUP", "2 x 10.00"),
        ("CUP", "2 x 0.00"),
    ]
