"""Bulk requests as the settings describe them; without a list endpoint, each request is for one order."""

import math
from typing import TYPE_CHECKING

from ingest.domain.masking import BULK_PLACEHOLDER, PLACEHOLDER
from ingest.upstream.bulk.bulk import BulkOptions

if TYPE_CHECKING:
    from ingest.settings import Settings


def requested_url(settings: "Settings") -> str:
    """Return the URL that requests are sent to; a bulk request has several IDs in the place of one."""
    return settings.upstream_bulk_url.replace(BULK_PLACEHOLDER, PLACEHOLDER) or settings.upstream_url


def orders_per_request(settings: "Settings") -> int:
    """Return for how many orders one request is sent, at most."""
    return min(settings.upstream_bulk_size, settings.concurrency) if settings.upstream_bulk_url else 1


def requests_at_once(settings: "Settings") -> int:
    """Return how many requests at a time are useful: as many as all orders in flight fill."""
    return math.ceil(settings.concurrency / orders_per_request(settings))


def answer_limit(settings: "Settings") -> int:
    """Return the most bytes of an answer: as many for each order as allowed, and for all of them as many as fit the buffer."""
    document = settings.upstream_body_limit
    return min(orders_per_request(settings) * document, max(document, settings.batch_bytes))


def bulk_options(settings: "Settings") -> BulkOptions:
    """Return how orders are requested together."""
    return BulkOptions(
        size=orders_per_request(settings),
        requests=requests_at_once(settings),
        url_length=len(requested_url(settings)),
        body=settings.upstream_body_limit,
        path=settings.upstream_bulk_path,
        id_path=settings.upstream_bulk_id,
    )
