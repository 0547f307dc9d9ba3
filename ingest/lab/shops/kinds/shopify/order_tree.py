"""Orders as the tree that Shopify's GraphQL Admin API selects from."""

from datetime import datetime
from decimal import Decimal

from ingest.lab.shops.kinds.kind import Document
from ingest.lab.shops.kinds.shopify.graphql import Connection
from ingest.lab.shops.kinds.shopify.graphql_query import Arguments
from ingest.lab.shops.kinds.shopify.rest_documents import (
    FIRST_ID,
    current_total,
    financial_status,
    line_id,
    refunded_quantity,
    sold_lines,
)
from ingest.lab.shops.orders import ZERO, Line, Refund, ShopOrder


def order_tree(order: ShopOrder) -> Document:
    """Return the tree of an order."""
    order_id, charged, shipping = FIRST_ID + order.number, order.charged, order.shipping_amount
    is_cancelled = order.status == "cancelled"
    address = None if order.country is None else {"countryCodeV2": order.country, "firstName": "Ada", "company": None}
    duties = None if not order.duty else _money(order.duty, order)
    fees = None if not order.fee else _money(order.fee, order)
    current, refunded = _money(current_total(order), order), _money(order.refunded.inc_tax, order)
    subtotal = sum((line.subtotal - line.discount for line in sold_lines(order)), ZERO)
    return {
        "__typename": "Order",
        "id": f"gid://shopify/Order/{order_id}",
        "legacyResourceId": str(order_id),
        "name": f"#{1000 + order.number}",
        "createdAt": _time(order.placed_at),
        "processedAt": _time(order.placed_at),
        "updatedAt": _time(order.updated_at),
        "cancelledAt": _time(order.updated_at) if is_cancelled else None,
        "cancelReason": "CUSTOMER" if is_cancelled else None,
        "closedAt": None,
        "closed": False,
        "confirmed": True,
        "displayFinancialStatus": financial_status(order).upper(),
        "displayFulfillmentStatus": "FULFILLED" if order.status == "shipped" else "UNFULFILLED",
        "currencyCode": order.currency,
        "presentmentCurrencyCode": order.currency,
        "taxesIncluded": order.taxes_included,
        "taxExempt": False,
        "dutiesIncluded": False,
        "edited": False,
        "test": False,
        "tags": [],
        "note": None,
        "email": "",
        "phone": None,
        "sourceName": "web",
        "customAttributes": [{"key": "revision", "value": str(order.revision)}],
        "customer": None if order.customer is None else _customer(order.customer),
        "shippingAddress": address,
        "billingAddress": address,
        "totalPriceSet": _money(charged.inc_tax, order),
        "originalTotalPriceSet": _money(charged.inc_tax, order),
        "currentTotalPriceSet": current,
        "subtotalPriceSet": _money(subtotal, order),
        "totalTaxSet": _money(charged.tax, order),
        "currentTotalTaxSet": _money(charged.tax - order.refunded.tax, order),
        "totalDiscountsSet": _money(order.discounts, order),
        "totalShippingPriceSet": _money(shipping.inc_tax if order.taxes_included else shipping.ex_tax, order),
        "originalTotalDutiesSet": duties,
        "currentTotalDutiesSet": duties,
        "originalTotalAdditionalFeesSet": fees,
        "currentTotalAdditionalFeesSet": fees,
        "totalRefundedSet": refunded,
        "totalTipReceivedSet": _money(ZERO, order),
        "netPaymentSet": current,
        "totalReceivedSet": _money(charged.inc_tax if order.status != "pending" else ZERO, order),
        "totalOutstandingSet": _money(charged.inc_tax if order.status == "pending" else ZERO, order),
        "totalCashRoundingAdjustment": {"paymentSet": _money(ZERO, order), "refundSet": _money(ZERO, order)},
        "additionalFees": _fees(order),
        "taxLines": _tax_lines(charged.tax, order),
        "shippingLines": Connection(_shipping_lines(order)),
        "lineItems": Connection([_line(order, index, line) for index, line in enumerate(sold_lines(order))]),
        "refunds": lambda arguments: _refunds(order, arguments),
    }


def _customer(number: int) -> Document:
    return {"id": f"gid://shopify/Customer/{number}", "legacyResourceId": str(number), "email": ""}


def _line(order: ShopOrder, index: int, line: Line) -> Document:
    quantity = int(line.quantity)
    return {
        "__typename": "LineItem",
        "id": f"gid://shopify/LineItem/{line_id(order, index)}",
        "sku": line.sku,
        "title": line.title,
        "name": line.title,
        "variantTitle": None,
        "quantity": quantity,
        "currentQuantity": quantity - refunded_quantity(order, index),
        "variant": None if not line.sku else {"id": f"gid://shopify/ProductVariant/{40_000_000 + index}"},
        "product": None if not line.sku else {"id": f"gid://shopify/Product/{70_000_000 + index}"},
        "originalUnitPriceSet": _money(line.unit_price, order),
        "originalTotalSet": _money(line.subtotal, order),
        "discountedTotalSet": _money(line.subtotal - line.discount, order),
        "totalDiscountSet": _money(ZERO, order),
        "discountAllocations": [_allocation(line.discount, order)] if line.discount else [],
        "taxLines": _tax_lines(order.line_amount(line).tax, order),
        "duties": [{"price": _money(order.duty, order), "taxLines": []}] if index == 0 and order.duty else [],
        "isGiftCard": False,
        "taxable": bool(order.tax_rate),
        "customAttributes": [],
    }


def _fees(order: ShopOrder) -> list[Document]:
    if not order.fee:
        return []
    fee = {"id": f"gid://shopify/AdditionalFee/{order.number}", "name": "Processing fee", "taxLines": []}
    return [{**fee, "price": _money(order.fee, order)}]


def _shipping_lines(order: ShopOrder) -> list[Document]:
    if not order.shipping:
        return []
    discounted = order.shipping - order.shipping_discount
    return [
        {
            "__typename": "ShippingLine",
            "id": f"gid://shopify/ShippingLine/{order.number}",
            "title": "Standard",
            "code": "standard",
            "isRemoved": False,
            "originalPriceSet": _money(order.shipping, order),
            "discountedPriceSet": _money(discounted, order),
            "currentDiscountedPriceSet": _money(discounted, order),
            "discountAllocations": [_allocation(order.shipping_discount, order)] if order.shipping_discount else [],
            "taxLines": _tax_lines(order.shipping_amount.tax, order),
        }
    ]


def _refunds(order: ShopOrder, arguments: Arguments) -> list[Document]:
    refunds = list(order.refunds)
    return [_refund(order, refund) for refund in refunds[: arguments.get("first") or len(refunds)]]


def _refund(order: ShopOrder, refund: Refund) -> Document:
    net = refund.amount.inc_tax if order.taxes_included else refund.amount.ex_tax
    item = {
        "lineItem": {
            "id": f"gid://shopify/LineItem/{line_id(order, refund.line)}",
            "sku": sold_lines(order)[refund.line].sku,
        },
        "quantity": int(refund.quantity),
        "restockType": "RETURN",
        "subtotalSet": _money(net, order),
        "totalTaxSet": _money(refund.amount.tax, order),
    }
    return {
        "__typename": "Refund",
        "id": f"gid://shopify/Refund/{900_000 + refund.number}",
        "legacyResourceId": str(900_000 + refund.number),
        "createdAt": _time(refund.at),
        "note": None,
        "totalRefundedSet": _money(refund.amount.inc_tax, order),
        "refundLineItems": Connection([item]),
    }


def _allocation(amount: Decimal, order: ShopOrder) -> Document:
    return {"allocatedAmountSet": _money(amount, order)}


def _tax_lines(tax: Decimal, order: ShopOrder) -> list[Document]:
    if not order.tax_rate:
        return []
    return [{"title": "VAT", "rate": float(order.tax_rate), "priceSet": _money(tax, order)}]


def _money(amount: Decimal, order: ShopOrder) -> Document:
    # Shopify omits the last zero of an amount, so that 10.00 is "10.0".
    text = str(amount.quantize(Decimal("0.01")))
    money = {"amount": text.removesuffix("0"), "currencyCode": order.currency}
    return {"shopMoney": money, "presentmentMoney": money}


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
