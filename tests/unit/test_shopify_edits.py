"""The total of an edited, returned or refunded order of Shopify is the shop's, whatever its parts are."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from shop_documents.shopify_events import EditedOrder, edited_orders

from ingest.mapping.load import load_mapping

LINE_ITEMS, SHIPPING = load_mapping("shopify-graphql").parts
GRAPHQL, REST = load_mapping("shopify-graphql"), load_mapping("shopify-rest")
SAMPLES = Path(__file__).parents[1] / "mapping_samples"
_encode = msgspec.json.Encoder(decimal_format="number").encode


@given(edited_orders())
def test_the_lines_of_an_edited_order_explain_its_total(order: EditedOrder) -> None:
    for mapping, document in ((GRAPHQL, {"data": {"order": order.graphql}}), (REST, {"order": order.rest})):
        mapped = mapping.read(_encode(document), None)

        assert mapped.order.total == order.total
        assert mapped.total_difference is None
        assert mapped.omitted == []


def money(amount: str) -> dict[str, Any]:
    return {"shopMoney": {"amount": amount}}


def edited(lines: list[tuple[str, int, int, str]], refunds: list[tuple[str, int, str]], total: str) -> dict[str, Any]:
    """A sample with these lines (price, quantity, current quantity, discount) and refunded units (type, quantity, subtotal)."""
    document = json.loads((SAMPLES / "shopify-graphql.json").read_text())
    document.pop("parts", None)
    changes = {
        "taxesIncluded": True,
        "dutiesIncluded": True,
        "additionalFees": [],
        "shippingLines": {"nodes": []},
        "totalPriceSet": money(total),
        "lineItems": {
            "nodes": [
                {
                    "id": f"gid://shopify/LineItem/{number}",
                    "sku": f"S{number}",
                    "quantity": quantity,
                    "currentQuantity": current,
                    "originalUnitPriceSet": money(price),
                    "discountAllocations": [{"allocatedAmountSet": money(discount)}] if discount else [],
                }
                for number, (price, quantity, current, discount) in enumerate(lines)
            ],
            "pageInfo": {"hasNextPage": False, "endCursor": None},
        },
        "refunds": [
            {
                "refundLineItems": {
                    "nodes": [
                        {
                            "quantity": units,
                            "restockType": kind,
                            "lineItem": {"id": "1", "sku": "S0"},
                            "subtotalSet": money(net),
                        }
                    ]
                }
            }
            for kind, units, net in refunds
        ],
    }
    document["data"]["order"].update(changes)
    return document


@pytest.mark.parametrize(
    ("document", "total"),
    [
        (edited([("48.0", 2, 1, "19.2")], [], "38.4"), "38.4"),
        (edited([("48.0", 2, 1, "19.2")], [("CANCEL", 1, "38.4")], "38.4"), "38.4"),
        (
            edited([("20.0", 1, 0, ""), ("15.0", 1, 0, "")], [("CANCEL", 1, "20.0"), ("RETURN", 1, "15.0")], "15.0"),
            "15.0",
        ),
        (edited([("10.0", 3, 2, "10.0")], [], "13.33"), "13.33"),
    ],
    ids=["discounted unit removed", "with its refund", "edited and returned", "a discount that cannot be divided"],
)
def test_an_edit_removes_the_share_of_the_discount(document: dict[str, Any], total: str) -> None:
    mapped = GRAPHQL.read(json.dumps(document).encode(), None)

    assert mapped.order.total == Decimal(total)
    assert mapped.total_difference is None


def test_a_total_that_the_parts_do_not_explain_is_the_total_of_the_order() -> None:
    mapped = GRAPHQL.read(json.dumps(edited([("48.0", 2, 1, "19.2")], [], "31.07")).encode(), None)

    assert mapped.order.total == Decimal("31.07")
    assert mapped.total_difference == "-45.73"


def test_shipping_charges_and_line_items_beyond_the_first_page_are_requested() -> None:
    document = edited([("1.0", 1, 1, "")], [], "1.0")
    for name in ("lineItems", "shippingLines"):
        document["data"]["order"][name]["pageInfo"] = {"hasNextPage": True, "endCursor": "abc"}

    for part, name in ((LINE_ITEMS, "lineItems"), (SHIPPING, "shippingLines")):
        page = part.within(json.dumps(document).encode(), "1")

        assert page is not None
        assert page.next is not None
        assert name in str(page.next.body)
        assert "abc" in str(page.next.body)


def test_a_shipping_charge_of_a_further_page_is_a_line() -> None:
    document = edited([("1.0", 1, 1, "")], [], "6.0")
    charge = {"title": "Express", "isRemoved": False, "originalPriceSet": money("5.0"), "discountAllocations": []}
    document["parts"] = {"shipping_lines": [charge]}

    mapped = GRAPHQL.read(json.dumps(document).encode(), None)

    assert (str(mapped.order.total), mapped.total_difference) == ("6.0", None)


@pytest.mark.parametrize(
    "broken", [{"quantity": None}, {"subtotalSet": None}, {"lineItem": None}, {"subtotalSet": money("x")}]
)
def test_a_refund_that_cannot_be_read_does_not_decide_about_the_order(broken: dict[str, Any]) -> None:
    document = edited([("20.0", 1, 0, ""), ("15.0", 1, 0, "")], [("CANCEL", 1, "20.0"), ("RETURN", 1, "15.0")], "15.0")
    document["data"]["order"]["refunds"][0]["refundLineItems"]["nodes"][0].update(broken)

    mapped = GRAPHQL.read(json.dumps(document).encode(), None)

    assert mapped.order.total == Decimal("15.0")
