"""The modes of a simulated shop: how real shops deviate from a list that is complete, in order and up to date.

Each mode follows documents of the shops, and reports of their users:

- `index_lag`: Shopify searches and sorts orders by an index that is behind them (estuary/connectors#4679). WooCommerce selects the IDs of
  a page first and loads the orders afterwards (`get_objects` in `class-wc-rest-crud-controller.php`).
- `left_out`: after the LIMIT of its query, WooCommerce skips objects that cannot be loaded or that the key may not read (`get_items`
  there). `X-WP-Total` and `X-WP-TotalPages` still count them.
- `page_cap`: hosts lower `per_page` by the filter `rest_shop_order_collection_params`. BigCommerce documents a limit of 250.
- `repeats`: Amazon returned the same orders for each new `NextToken` (amzn/selling-partner-api-models#2297). Plugins and caches ignore
  `page` (woocommerce/woocommerce#34946, #33386).
- `breaking_id`: in Magento, one order of a deleted product breaks every page with it (magento/magento2#7518).
- `time_step`, `time_format`: WooCommerce and Magento store whole seconds (MySQL `datetime`). Other APIs write whole minutes.
- `replica_lag`, `replica_share`: reads from a MySQL or PostgreSQL replica show the past.
- `database_behind`: `updated_at` is the time of the database, and `Date` is the time of the web server (magento/magento2#28181).
- `drafts`: WooCommerce sends webhooks for the status `checkout-draft`, and leaves it out of lists and of `include`
  (woocommerce/woocommerce#66995). BigCommerce has the `status_id` 0, and sends `store/order/created` for it (bigcommerce/docs#175).
- `unreadable`: WooCommerce leaves an order out of `include` that the key may not read, and responds with 403 for it alone
  (`check_post_permissions` in `class-wc-rest-posts-controller.php`).
- `denied`: access to protected customer data varies by the plan (https://shopify.dev/docs/apps/launch/protected-customer-data).
- `second_topic`: one event causes webhooks of several topics, which share `X-Shopify-Event-Id`
  (https://shopify.dev/docs/apps/build/webhooks/ignore-duplicates). BigCommerce has `store/order/updated` and `store/order/statusUpdated`.
- `webhook_hour`, `unheard`: Shopify sends a webhook up to 8 more times within 4 hours, each with the document of the event
  (https://shopify.dev/changelog/updates-to-webhook-retry-mechanism). BigCommerce repeats webhooks, and can send duplicates
  (https://docs.bigcommerce.com/developer/docs/integrations/webhooks). Its schedule here is the example of Standard Webhooks, which lasts
  more than 3 days. WooCommerce does not repeat webhooks, and disables them after more than 5 failures in a row (`class-wc-webhook.php`).
- `lost_replies`: a request that was carried out may receive no response (https://shopify.dev/docs/api/usage/idempotent-requests).
- `served_version`, `deprecated`: Shopify serves the oldest supported version in place of a version that has ended, and names deprecated calls in
  a header (https://shopify.dev/docs/api/usage/versioning).
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Lag = Annotated[float, msgspec.Meta(ge=0, le=3600)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class ShopModes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the shop deviates. By default, it does not."""

    index_lag: Annotated[_Lag, "seconds that the order of lists is behind the listed documents"] = 0.0
    left_out: Annotated[_Count, "leaves out each order whose number is a multiple, after pages are cut"] = 0
    page_cap: Annotated[_Count, "most orders on a page, whatever a request asks for"] = 0
    repeats: Annotated[bool, "serves the first page for every cursor, each with a new next one"] = False
    breaking_id: Annotated[str | None, "responds with 500 for each page that contains this order"] = None
    time_step: Annotated[
        Annotated[float, msgspec.Meta(ge=1, le=86_400)], "seconds to which times are cut, such as 60"
    ] = 1.0
    time_format: Annotated[str, "format of times in lists of `plain`, such as %d.%m.%Y %H:%M"] = ""
    replica_lag: Annotated[_Lag, "seconds that a replica is behind, from which lists and orders are read"] = 0.0
    replica_share: Annotated[Share, "share of the reads that go to the replica"] = 1.0
    database_behind: Annotated[
        Annotated[float, msgspec.Meta(ge=-86_400, le=86_400)], "seconds that times are behind the header Date"
    ] = 0.0
    drafts: Annotated[_Count, "makes each order whose number is a multiple a checkout that was not completed"] = 0
    unreadable: Annotated[_Count, "responds with 403 for each order whose number is a multiple"] = 0
    denied: Annotated[str, "field of orders of `shopify` to which access is denied, such as shippingAddress"] = ""
    second_topic: Annotated[bool, "sends webhooks of two topics for one event"] = False
    webhook_hour: Annotated[
        _Lag,
        "seconds that stand for an hour, in the schedule by which failed webhooks are sent again, or 0 to lose them",
    ] = 0.0
    unheard: Annotated[Share, "share of the received webhooks whose response the shop does not receive"] = 0.0
    lost_replies: Annotated[Share, "share of the requests that take effect, but receive no response"] = 0.0
    served_version: Annotated[str, "version of Shopify's API that is served in place of the requested one"] = ""
    deprecated: Annotated[str, "reason in the header X-Shopify-API-Deprecated-Reason"] = ""

    def is_draft(self, number: int) -> bool:
        """Whether an order is a checkout that was not completed."""
        return bool(self.drafts) and not number % self.drafts

    def is_unreadable(self, number: int) -> bool:
        """Whether an order may not be read."""
        return bool(self.unreadable) and not number % self.unreadable


def parsed_modes(texts: Sequence[str]) -> dict[str, object]:
    """Read modes such as `index_lag=2`.

    Raises:
        ValueError: a mode is unknown, or its value is invalid.
    """
    fields = dict(text.partition("=")[::2] for text in texts)
    modes = msgspec.convert(fields, ShopModes, strict=False)
    return {name: getattr(modes, name) for name in fields}


def described_modes() -> dict[str, str]:
    """Return the effect of each mode by name."""
    return {name: ShopModes.__annotations__[name].__metadata__[-1] for name in ShopModes.__struct_fields__}
