"""Classifies a request of a webhook as orders, as another event to acknowledge, or as rejected. Pure except for the secrets."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from multidict import MultiMapping

from ingest.api.webhooks.event_time import read_event_time
from ingest.api.webhooks.places import EachPlace, HeaderPlace, NotJson, checked_json
from ingest.api.webhooks.schemes import Claim
from ingest.api.webhooks.webhook import Webhook
from ingest.domain.deliveries.announcement import UNKNOWN_VERSION, Announcement, InvalidAnnouncement
from ingest.domain.orders.order import InvalidOrderId
from ingest.domain.webhook_result import WebhookResult

# IDs of other characters, and longer ones, go into the queue as their digest.
_USUAL_ID = re.compile(r"[A-Za-z0-9._:/=+-]{1,100}", re.ASCII)
_UNSIGNED = Claim(())


class Refused(Exception):
    """A webhook that is not accepted.

    Attributes:
        result: Why, for metrics.
        code: Why, for programs.
        detail: The reason in words, without any part of the body.
    """

    def __init__(self, result: WebhookResult, code: str, detail: str) -> None:
        super().__init__(detail)
        self.result = result
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ReceivedOrders:
    """The orders that a webhook announces.

    Attributes:
        announcements: At least one announcement for the queue.
        idempotency_key: The same for every delivery of one event, or None if the event has no ID.
        problem: Why some of its orders cannot be enqueued, if there are such orders.
    """

    announcements: tuple[Announcement, ...]
    idempotency_key: str | None
    problem: Refused | None = None


def read_webhook(webhook: Webhook, headers: MultiMapping[str], body: bytes, now: float) -> ReceivedOrders | None:
    """The orders in a request, or None if it carries none and only has to be acknowledged.

    Args:
        webhook: The webhook that the request names.
        headers: The headers of the request.
        body: The body as it was sent.
        now: Unix time.

    Raises:
        Refused: It is not signed, or cannot be read.
    """
    claim = webhook.profile.scheme.claim(headers)
    if claim is None and webhook.profile.ping is not None and webhook.profile.ping.fullmatch(body):
        return None
    _check_signature(webhook, claim, body, now)
    try:
        document = checked_json(body)
    except NotJson:
        raise Refused(
            WebhookResult.MALFORMED, "invalid_json", "the body is not a JSON object or list in UTF-8"
        ) from None
    if _is_test(webhook, headers) or not _is_order(webhook, headers, document):
        return None
    found = [
        order_id
        for order_id in _order_ids(webhook, headers, document)
        if order_id not in webhook.profile.test_order_ids
    ]
    if not found:
        return None
    announcements, problem = _announcements(webhook, headers, body, document, found)
    return ReceivedOrders(announcements, _idempotency_key(webhook, headers, document), problem)


def _check_signature(webhook: Webhook, claim: Claim | None, body: bytes, now: float) -> None:
    # The body is hashed even without a claim, so that the response time does not reveal the difference.
    is_signed = any(key.fits(claim or _UNSIGNED, body) for key in webhook.secrets.keys)
    if claim is None or not is_signed:
        raise Refused(WebhookResult.BAD_SIGNATURE, "bad_signature", "no signature of this request fits")
    if claim.timestamp is not None and not abs(now - claim.timestamp) <= webhook.tolerance:
        detail = f"the timestamp differs from now by more than {webhook.tolerance:g} s"
        raise Refused(WebhookResult.EXPIRED, "expired", detail)


def _is_test(webhook: Webhook, headers: MultiMapping[str]) -> bool:
    place = webhook.profile.test_header
    return place is not None and (place.read(headers, b"") or "").lower() == "true"


def _is_order(webhook: Webhook, headers: MultiMapping[str], document: bytes) -> bool:
    place = webhook.profile.event
    if place is None or isinstance(place, EachPlace):
        return True
    event = place.read(headers, document)
    if event is None:
        raise Refused(WebhookResult.MALFORMED, "no_event", f"there is no name of an event: {place}")
    return webhook.is_order(event)


def _order_ids(webhook: Webhook, headers: MultiMapping[str], document: bytes) -> Sequence[str]:
    """The IDs as they are written. Empty if the request contains only other events."""
    place, event = webhook.order_id, webhook.profile.event
    if not isinstance(place, EachPlace):
        found = [place.read(headers, document)]
    else:
        elements = place.elements(document)
        if isinstance(event, EachPlace) and elements is not None:
            named = [(event.below.read(headers, element), element) for element in elements]
            elements = [element for name, element in named if name is not None and webhook.is_order(name)]
            if not elements:
                return []
        found = [place.below.read(headers, element) for element in elements or ()]
    ids = [order_id.removeprefix(webhook.declared.remove_prefix) for order_id in found if order_id is not None]
    if not ids:
        raise Refused(WebhookResult.MALFORMED, "no_order_id", f"there is no ID of an order: {place}")
    return list(dict.fromkeys(ids))


def _announcements(
    webhook: Webhook, headers: MultiMapping[str], body: bytes, document: bytes, order_ids: Sequence[str]
) -> tuple[tuple[Announcement, ...], Refused | None]:
    """The orders that can be enqueued, and why others cannot.

    Raises:
        Refused: No order can be enqueued.
    """
    order = webhook.document.find(document) if webhook.document is not None else None
    if order is not None and not order.startswith(b"{"):
        raise Refused(WebhookResult.MALFORMED, "invalid_document", f"the order is no JSON object: {webhook.document}")
    if order is not None and _is_other_resource(webhook, headers, order, order_ids):
        order = None
    event_at = None if order is None else _event_at(webhook, headers, document)
    if order == document:
        order = body  # as it was sent, because the worker counts the documents that it cleans
    announcements, problem = [], None
    for order_id in order_ids:
        try:
            announcements.append(
                Announcement(
                    order_id,
                    order,
                    origin=f"webhook:{webhook.name}",
                    event_at=event_at,
                    expected_version=_version(webhook, headers, document, order_id),
                )
            )
        except InvalidOrderId:
            detail = f"what should be the ID of an order is none: {webhook.order_id}"
            problem = Refused(WebhookResult.MALFORMED, "invalid_order_id", detail)
        except InvalidAnnouncement as error:
            problem = Refused(WebhookResult.MALFORMED, "invalid_document", str(error))
    if problem is not None and not announcements:
        raise problem
    return tuple(announcements), problem


def _event_at(webhook: Webhook, headers: MultiMapping[str], document: bytes) -> datetime | None:
    place = webhook.profile.event_time
    return read_event_time((place.read(headers, document) if place is not None else None) or "")


def _is_other_resource(webhook: Webhook, headers: MultiMapping[str], found: bytes, order_ids: Sequence[str]) -> bool:
    """Whether the body of this event is not the order itself, such as an edit of an order of Shopify. Workers then fetch it."""
    place = webhook.profile.version
    if place is None or webhook.declared.order_id is not None:
        return False
    found_id = place.order_id.read(headers, found) or ""
    return found_id.removeprefix(webhook.declared.remove_prefix) not in order_ids


def _version(webhook: Webhook, headers: MultiMapping[str], document: bytes, order_id: str) -> datetime:
    """The version of an order that exists, because a signed webhook names it."""
    place = webhook.profile.version
    return (place.read(headers, document, order_id) if place is not None else None) or UNKNOWN_VERSION


def _idempotency_key(webhook: Webhook, headers: MultiMapping[str], document: bytes) -> str | None:
    place = webhook.profile.delivery_id
    delivery_id = place.read(headers, document) if place is not None else None
    if not delivery_id:
        return None
    if not _USUAL_ID.fullmatch(delivery_id):
        delivery_id = hashlib.sha256(delivery_id.encode("utf-8", "surrogatepass")).hexdigest()
    if isinstance(place, HeaderPlace) and webhook.profile.scheme.id_header.lower() not in map(str.lower, place.names):
        # The ID is not signed. An old body that is sent again with the ID of another event must not suppress that event.
        delivery_id += f":{hashlib.sha256(document).hexdigest()[:16]}"
    return f"webhook:{webhook.name}:{delivery_id}"
