"""The known senders, with their signatures and the places of the event and the order ID."""

import re
from dataclasses import dataclass

from ingest.api.webhooks.keys import ParseKey, hmac_key, standard_key
from ingest.api.webhooks.places import (
    BodyDigest,
    EachPlace,
    FirstPlace,
    HeaderPlace,
    PathPlace,
    Place,
)
from ingest.api.webhooks.schemes import HeaderScheme, Scheme, StandardScheme, StripeScheme, decode_base64
from ingest.api.webhooks.version_place import VersionPlace

_WOOCOMMERCE_PING = re.compile(rb"webhook_id=[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of sender. A value that is None has to be declared by each webhook, or does not exist.

    Attributes:
        scheme: How it signs.
        parse_key: How its secrets are written.
        has_timestamp: Whether it signs a timestamp.
        event: The place of the event's name.
        events: Patterns of the events that are orders.
        ignore: Patterns of events to ignore.
        readable: Patterns of the events whose order ID is at the profile's own place. None for any.
        order_id: The place of the order's ID.
        version: The place of the order's version.
        delivery_id: Where the ID is that is the same when an event is sent again.
        event_time: The place of the sender's own time of the event.
        test_header: `true` in a request that the sender makes for a test, about an order that does not exist.
        test_order_ids: The IDs of such orders.
        ping: The possible bodies of a request that only checks that the URL exists. It is not signed and carries no event.
    """

    scheme: Scheme
    parse_key: ParseKey
    has_timestamp: bool
    event: Place | EachPlace | None = None
    events: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    readable: tuple[str, ...] | None = None
    order_id: Place | None = None
    version: VersionPlace | None = None
    delivery_id: Place | None = None
    event_time: Place | None = None
    test_header: HeaderPlace | None = None
    test_order_ids: frozenset[str] = frozenset()
    ping: re.Pattern[bytes] | None = None


PROFILES: dict[str, Profile] = {
    "standard": Profile(
        StandardScheme(),
        standard_key,
        has_timestamp=True,
        event=PathPlace("type", ("type",)),
        events=("order.*",),
        ignore=("order.deleted",),
        delivery_id=HeaderPlace(StandardScheme.id_headers),
        event_time=PathPlace("timestamp", ("timestamp",)),
    ),
    "shopify": Profile(
        # Newer subscriptions leave out the X- of all these headers.
        HeaderScheme(("X-Shopify-Hmac-Sha256", "Shopify-Hmac-Sha256"), decode_base64),
        hmac_key,
        has_timestamp=False,
        event=HeaderPlace(("X-Shopify-Topic", "Shopify-Topic")),
        events=("orders/*",),
        ignore=("orders/delete",),
        readable=(
            "orders/*",
            "refunds/create",
            "fulfillments/create",
            "fulfillments/update",
            "order_transactions/create",
        ),
        # An edit, a resource of an order such as a refund or a risk assessment, or the order itself.
        order_id=FirstPlace.of("order_edit.order_id", "order_id", "id"),
        version=VersionPlace(PathPlace("id", ("id",)), PathPlace("updated_at", ("updated_at",))),
        # Not the event's ID, which several topics share.
        delivery_id=HeaderPlace(("X-Shopify-Webhook-Id", "Shopify-Webhook-Id")),
        event_time=HeaderPlace(("X-Shopify-Triggered-At", "Shopify-Triggered-At")),
        # "Send test notification" in the admin, and `shopify app webhook trigger`.
        test_header=HeaderPlace(("X-Shopify-Test", "Shopify-Test")),
        test_order_ids=frozenset({"820982911946154508"}),
    ),
    "stripe": Profile(
        StripeScheme(),
        hmac_key,
        has_timestamp=True,
        event=PathPlace("type", ("type",)),
        delivery_id=PathPlace("id", ("id",)),
    ),
    "woocommerce": Profile(
        HeaderScheme(("X-WC-Webhook-Signature",), decode_base64),
        hmac_key,
        has_timestamp=False,
        event=HeaderPlace(("X-WC-Webhook-Topic",)),
        # The first argument of these actions is an order, as in woocommerce_order_status_completed.
        events=("order.*", "action.woocommerce_order_*", "action.woocommerce_payment_complete"),
        ignore=("order.deleted",),
        readable=("order.*", "action.*"),
        # The order itself, an action with its first argument, or the payload of the version "Legacy API v3".
        order_id=FirstPlace.of("order.id", "arg", "id"),
        version=VersionPlace(PathPlace("id", ("id",)), PathPlace("date_modified_gmt", ("date_modified_gmt",))),
        # Two deliveries of one second share their ID, and orders in the body contain the time of their last change.
        delivery_id=BodyDigest(),
        ping=_WOOCOMMERCE_PING,
    ),
    "bigcommerce": Profile(
        # Standard Webhooks, but the key is the client secret of the API account without decoding.
        StandardScheme(),
        hmac_key,
        has_timestamp=True,
        event=PathPlace("scope", ("scope",)),
        events=("store/order/*",),
        # Their `data.id` is missing, or is not the ID of an order.
        ignore=("store/order/transaction/*", "store/order/metafield/*"),
        readable=("store/order/*",),
        order_id=PathPlace("data.id", ("data", "id")),
        delivery_id=HeaderPlace(StandardScheme.id_headers),
    ),
}
"""All but `hmac`, which each webhook declares completely."""
