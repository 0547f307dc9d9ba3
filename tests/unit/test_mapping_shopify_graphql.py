"""The mapping of orders from Shopify's GraphQL API, on documents with every peculiarity."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ingest.domain.orders.order import InvalidDocument, Order
from ingest.mapping.load import load_mapping

SAMPLE = Path(__file__).parents[1] / "mapping_samples" / "shopify-graphql.json"
MAPPING = load_mapping("shopify-graphql")
ID = "9007199254740993"


def mapped(**changes: Any) -> Order:
    """The sample with some values of the order changed."""
    document = msgspec.json.decode(SAMPLE.read_bytes())
    document["data"]["order"].update(changes)
    return MAPPING.decode(msgspec.json.encode(document), ID)


def lines(order: Order) -> list[tuple[str, object, str, str | None]]:
    return [(line.sku, line.quantity, str(line.unit_price), line.description) for line in order.lines]


def money(amount: str) -> dict[str, Any]:
    return {"shopMoney": {"amount": amount}}


def test_the_fields_of_an_order() -> None:
    order = mapped()

    # The ID of the REST API and of webhooks. More than a double can hold.
    assert order.id == ID
    assert order.placed_at == datetime(2025, 1, 24, 4, 10, 16, tzinfo=UTC)
    assert order.updated_at == datetime(2025, 2, 1, 13, tzinfo=UTC)
    assert order.status == "partially_refunded/in_progress"
    # The currency of the shop, as all amounts.
    assert (order.currency, order.customer_id, order.country) == ("HKD", "207119551", "HK")


def test_the_lines_of_all_pages_add_up_to_the_total() -> None:
    order = mapped()

    assert lines(order) == [
        ("IPOD2008GREEN", 1, "199.0", "IPod Nano - green"),
        ("line-703073503", 3, "3.0", "Sticker"),
        ("line-703073504", 2, "0.0", "Custom item"),
        ("DISCOUNT", 1, "-15.0", None),
        ("DISCOUNT", 1, "-4.1", None),
        ("SHIPPING", 1, "20.0", "Express"),
        ("DISCOUNT", 1, "-5.0", None),
        ("FEE", 1, "1.28", "Processing fee"),
        ("DUTY", 1, "7.35", None),
        ("TAX", 1, "11.9", None),
    ]
    assert order.total == Decimal("224.43")
    assert "total_difference" not in order.attributes


def test_the_attributes_of_an_order() -> None:
    assert msgspec.json.decode(mapped().attributes_json()) == {
        "name": "#1001",
        "total_price": "224.43",
        "current_total_price": "28.76",
        "total_refunded": "195.67",
        "financial_status": "partially_refunded",
        "fulfillment_status": "in_progress",
        "presentment_currency": "EUR",
        "test": False,
        "tags": ["b2b", "vip"],
        "custom_attributes": [{"key": "gift_note", "value": "For you"}],
        "current_quantities": [0, 3],
        "refunded": ["195.66", "0.01"],
    }


def test_taxes_and_duties_that_are_in_the_prices_are_not_lines() -> None:
    order = mapped(taxesIncluded=True, dutiesIncluded=True, totalPriceSet=money("205.18"))

    assert {line.sku for line in order.lines} & {"TAX", "DUTY"} == set()
    assert "total_difference" not in order.attributes


@pytest.mark.parametrize(
    ("total", "skus"), [("224.43", 1), ("239.43", 2)], ids=["removed before it was charged", "charged and returned"]
)
def test_a_removed_shipping_charge_is_a_line_if_the_total_contains_it(total: str, skus: int) -> None:
    kept = msgspec.json.decode(SAMPLE.read_bytes())["data"]["order"]["shippingLines"]["nodes"]

    order = mapped(shippingLines={"nodes": [*kept, {**kept[0], "isRemoved": True}]}, totalPriceSet=money(total))

    assert sum(line.sku == "SHIPPING" for line in order.lines) == skus
    assert "total_difference" not in order.attributes


@pytest.mark.parametrize(("total", "tips"), [("224.43", 0), ("227.43", 1)], ids=["a line item", "beside the lines"])
def test_a_tip_is_a_line_unless_it_is_a_line_item(total: str, tips: int) -> None:
    order = mapped(totalTipReceivedSet=money("3.0"), totalPriceSet=money(total))

    assert sum(line.sku == "TIP" for line in order.lines) == tips
    assert "total_difference" not in order.attributes


def test_a_discount_of_an_imported_order_that_is_not_allocated_is_a_line() -> None:
    order = mapped(totalDiscountsSet=money("30.0"), totalPriceSet=money("194.43"))

    assert ("DISCOUNT", 1, "-30.0", None) in lines(order)
    assert "total_difference" not in order.attributes


def test_a_total_that_the_lines_do_not_explain_is_kept() -> None:
    assert mapped(totalPriceSet=money("224.44")).attributes["total_difference"] == "0.01"


def test_an_order_without_what_is_optional() -> None:
    order = mapped(
        customer=None,
        shippingAddress=None,
        billingAddress=None,
        cancelledAt="2025-01-24T05:00:00Z",
        cancelReason="CUSTOMER",
        displayFinancialStatus=None,
        originalTotalDutiesSet=None,
        totalTaxSet=None,
        additionalFees=[],
        shippingLines={"nodes": []},
        refunds=[],
        tags=[],
        totalPriceSet=money("188.9"),
    )

    assert (order.customer_id, order.country, order.status) == (None, None, "cancelled")
    assert (order.attributes["cancel_reason"], "total_difference" in order.attributes) == ("customer", False)
    assert mapped(displayFinancialStatus=None).status == "unknown/in_progress"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"data": {"order": None}}, "no value for the order"),
        ({"data": None, "errors": [{"message": "secret"}]}, "no value for the order"),
        ({"data": {"order": {"legacyResourceId": "7"}}}, "belongs to another order"),
    ],
)
def test_another_document_is_invalid(document: Any, problem: str) -> None:
    with pytest.raises(InvalidDocument, match=problem) as caught:
        MAPPING.decode(msgspec.json.encode(document), ID)

    assert "secret" not in str(caught.value)
