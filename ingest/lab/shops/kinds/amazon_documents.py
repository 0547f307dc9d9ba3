"""Orders as Amazon's Selling Partner API writes them, in the versions 2026-01-01 and v0."""

from collections.abc import Set as AbstractSet
from datetime import datetime
from decimal import Decimal

from ingest.lab.shops.kinds.kind import Document
from ingest.lab.shops.orders import NO_AMOUNT, ZERO, Line, ShopOrder

MARKETPLACE, MARKETPLACE_NAME = "A1PA6795UKMFR9", "Amazon.de"
_STATUSES = {"pending": "PENDING", "paid": "UNSHIPPED", "shipped": "SHIPPED", "cancelled": "CANCELLED"}
_STATUSES_V0 = {"pending": "Pending", "paid": "Unshipped", "shipped": "Shipped", "cancelled": "Canceled"}


def order_id(number: int) -> str:
    """Return the ID of an order, with 3, 7 and 7 digits."""
    return f"026-{number:07}-{number * 7_654_321 % 10_000_000:07}"


def order_2026(order: ShopOrder, included: AbstractSet[str]) -> Document:
    """Return an order of version 2026-01-01 with the included data sets. Optional keys are missing, not null."""
    document: Document = {
        "orderId": order_id(order.number),
        "orderAliases": [{"aliasId": f"R{order.number}-{order.revision}", "aliasType": "SELLER_ORDER_ID"}],
        "createdTime": _time(order.placed_at),
        "lastUpdatedTime": _time(order.updated_at),
        "programs": [],
        "associatedOrders": [],
        "salesChannel": {
            "channelName": "AMAZON",
            "marketplaceId": MARKETPLACE,
            "marketplaceName": MARKETPLACE_NAME,
        },
    }
    # The amounts of a pending order are unknown.
    has_amounts = order.status != "pending"
    if "RECIPIENT" in included and order.country and has_amounts:
        document["recipient"] = {"deliveryAddress": {"countryCode": order.country}}
    if "PROCEEDS" in included and has_amounts:
        document["proceeds"] = {"grandTotal": _money(order.charged.inc_tax, order)}
    if "FULFILLMENT" in included:
        document["fulfillment"] = {
            "fulfillmentStatus": _STATUSES[order.status],
            "fulfilledBy": "MERCHANT",
            "fulfillmentServiceLevel": "STANDARD",
        }
    document["orderItems"] = [_item_2026(order, index, line, included) for index, line in enumerate(order.lines)]
    return document


def _item_2026(order: ShopOrder, index: int, line: Line, included: AbstractSet[str]) -> Document:
    item: Document = {
        "orderItemId": _item_id(order, index),
        "quantityOrdered": int(line.quantity),
        "programs": [],
        "fulfillment": {
            "quantityFulfilled": int(line.quantity) if order.status == "shipped" else 0,
            "quantityUnfulfilled": int(line.quantity) if order.status in {"pending", "paid"} else 0,
        },
        "product": {"asin": f"B{index:09}", "title": line.title, "condition": {"conditionType": "NEW"}},
    }
    if line.sku:
        item["product"]["sellerSku"] = line.sku
    if order.status == "pending":
        return item
    item["product"]["price"] = {"unitPrice": _money(line.unit_price, order)}
    if "PROCEEDS" in included:
        before, after = order.amount(line.subtotal), order.line_amount(line)
        # Charges of the whole order belong to its first item.
        extras = order.shipping_amount, order.wrapping_amount, order.fee
        shipping, wrapping, fee = extras if index == 0 else (NO_AMOUNT, NO_AMOUNT, ZERO)
        breakdowns = {
            "ITEM": before.ex_tax,
            "SHIPPING": shipping.ex_tax,
            "GIFT_WRAP": wrapping.ex_tax,
            "COD_FEE": fee,
            "TAX": after.tax + shipping.tax + wrapping.tax,
            "DISCOUNT": after.ex_tax - before.ex_tax,
        }
        item["proceeds"] = {
            "proceedsTotal": _money(sum(breakdowns.values(), ZERO), order),
            "breakdowns": [
                {"type": name, "subtotal": _money(amount, order)}
                for name, amount in breakdowns.items()
                if amount or name == "ITEM"
            ],
        }
    return item


def order_v0(order: ShopOrder) -> Document:
    """Return an order of version v0 without its items."""
    document: Document = {
        "AmazonOrderId": order_id(order.number),
        "SellerOrderId": f"R{order.number}-{order.revision}",
        "PurchaseDate": _time(order.placed_at),
        "LastUpdateDate": _time(order.updated_at),
        "OrderStatus": _STATUSES_V0[order.status],
        "FulfillmentChannel": "MFN",
        "SalesChannel": MARKETPLACE_NAME,
        "MarketplaceId": MARKETPLACE,
        "NumberOfItemsShipped": len(order.lines) if order.status == "shipped" else 0,
        "NumberOfItemsUnshipped": len(order.lines) if order.status == "paid" else 0,
        "OrderType": "StandardOrder",
        "IsPrime": False,
        "IsBusinessOrder": False,
    }
    if order.status != "pending":
        document["OrderTotal"] = _money_v0(order.charged.inc_tax, order)
    if order.country and order.status in {"paid", "shipped"}:
        document["ShippingAddress"] = {"CountryCode": order.country}
    return document


def order_items_v0(order: ShopOrder) -> list[Document]:
    """Return the items of an order of version v0. Prices include tax, as in Europe."""
    return [_item_v0(order, index, line) for index, line in enumerate(order.lines)]


def _item_v0(order: ShopOrder, index: int, line: Line) -> Document:
    item: Document = {
        "OrderItemId": _item_id(order, index),
        "ASIN": f"B{index:09}",
        "Title": line.title,
        "QuantityOrdered": int(line.quantity),
        "QuantityShipped": int(line.quantity) if order.status == "shipped" else 0,
        "ProductInfo": {"NumberOfItems": "1"},
        "IsGift": "true" if order.gift_wrap and index == 0 else "false",
        "IsTransparency": False,
    }
    if line.sku:
        item["SellerSKU"] = line.sku
    if order.status == "pending":
        return item
    before, after = order.amount(line.subtotal), order.line_amount(line)
    amounts = {
        "ItemPrice": before.inc_tax,
        "ItemTax": before.tax,
        "PromotionDiscount": line.discount,
        "PromotionDiscountTax": before.tax - after.tax,
    }
    if index == 0:
        shipping = order.amount(order.shipping)
        amounts |= {
            "ShippingPrice": shipping.inc_tax,
            "ShippingTax": shipping.tax,
            "ShippingDiscount": order.shipping_discount,
            "ShippingDiscountTax": shipping.tax - order.shipping_amount.tax,
            "CODFee": order.fee,
        }
        if order.gift_wrap:
            wrapping = order.wrapping_amount
            item["BuyerInfo"] = {
                "GiftWrapPrice": _money_v0(wrapping.inc_tax, order),
                "GiftWrapTax": _money_v0(wrapping.tax, order),
                "GiftWrapLevel": "Classic",
            }
    return item | {name: _money_v0(amount, order) for name, amount in amounts.items() if amount or name in _ALWAYS}


_ALWAYS = frozenset({"ItemPrice", "ItemTax"})


def _item_id(order: ShopOrder, index: int) -> str:
    return f"0{order.number:08}{index:05}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _money(amount: Decimal, order: ShopOrder) -> Document:
    return {"amount": str(amount), "currencyCode": order.currency}


def _money_v0(amount: Decimal, order: ShopOrder) -> Document:
    return {"CurrencyCode": order.currency, "Amount": str(amount)}
