"""`PUT /v1/orders/{order_id}` enqueues a whole order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from aiohttp import web

from ingest.api.documentation.documentation import ORDER_ID, Documentation
from ingest.api.http.json_responses import JSON
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits, read_body
from ingest.api.http.routing import Caller, Route
from ingest.api.orders.queueing import ACCEPTED, Queueing, accepted_response
from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT, Announcement, InvalidAnnouncement
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.clean_json import clean_json
from ingest.domain.orders.order import InvalidDocument, InvalidOrderId, parse_order_id
from ingest.flow.ports import Decode

_DOCUMENTATION = Documentation(
    text="Enqueues an order that need not be fetched. A worker stores it like any other, unless it has stored a newer "
    "version. The document uses the shape of the external API, which is our own, or with `INGEST_MAPPING` the source's.",
    parameters=[ORDER_ID],
    bodies={JSON: {"type": "object", "description": "The document of the order, see the page on order documents."}},
    status=202,
    response="The order is in the queue.",
    schema=ACCEPTED,
    problems={
        422: "The ID in the path is invalid, or the document is no valid document of that order.",
    },
)


@dataclass(frozen=True, slots=True)
class Pushing:
    """The route.

    Attributes:
        queueing: Enqueues orders.
        decode: Decodes a document as the worker does.
        limits: The limits of bodies.
    """

    queueing: Queueing
    decode: Decode
    limits: BodyLimits

    def routes(self) -> Sequence[Route]:
        """The route."""
        return [Route("PUT", "/v1/orders/{order_id}", "orders.push", self.push, _DOCUMENTATION)]

    async def push(self, request: web.Request, _: Caller) -> web.Response:
        """Check an order as its worker will, and enqueue it."""
        order_id = order_id_of(request)
        if request.content_type != JSON:
            raise Problem(415, "content_type", f"the body must be {JSON}")
        limits = replace(self.limits, size=min(self.limits.size, DOCUMENT_LIMIT))
        document = await read_body(request, limits)
        try:
            await self.decode.decode(clean_json(document), FetchRequest(order_id))
            # As it was sent, because the worker counts the documents that it cleans.
            announcement = Announcement(order_id, document)
        except (InvalidDocument, InvalidAnnouncement) as error:
            raise Problem(422, "invalid_order", str(error)) from error
        return accepted_response(await self.queueing.announce(announcement))


def order_id_of(request: web.Request, end: str = "") -> str:
    """The order ID in the path, which is its last segment before `end`.

    Raises:
        Problem: 422 if it is none.
    """
    try:
        # From the path as it was sent: aiohttp leaves bytes encoded that are not UTF-8, which would be another order's ID.
        return parse_order_id(unquote(request.rel_url.raw_path.removesuffix(end).rpartition("/")[2], errors="strict"))
    except UnicodeDecodeError:
        raise Problem(422, "invalid_order_id", "the ID in the path is not percent-encoded UTF-8") from None
    except InvalidOrderId as error:
        raise Problem(422, "invalid_order_id", str(error)) from error
