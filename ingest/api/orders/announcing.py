"""`POST /v1/orders` enqueues order IDs from JSON or NDJSON."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import msgspec
from aiohttp import web

from ingest.api.documentation.documentation import Documentation, Parameter
from ingest.api.http.json_responses import JSON
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits, decoded, read_body, refuse_encoding
from ingest.api.http.routing import Caller, Route
from ingest.api.orders.idempotency import Idempotency, digest_of, key_of, name_of
from ingest.api.orders.ndjson import CONTENT_TYPE as NDJSON
from ingest.api.orders.ndjson import Batch, Lines
from ingest.api.orders.queueing import ACCEPTED, Queueing, accepted_response
from ingest.domain.api_key import Scope
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import Announcement, InvalidAnnouncement
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.domain.orders.order_id import SCHEMA
from ingest.queue.produce.idempotent_calls import Begun
from ingest.queue.produce.submission import Orders

_PATH = "/v1/orders"
# Clients send more IDs as NDJSON, which is read in pieces.
_MOST_IDS = 10_000


# The schema is only for the OpenAPI document. An ID is checked when it is enqueued, and an invalid one is named by its index.
OrderId = Annotated[str, msgspec.Meta(extra_json_schema=SCHEMA)]


class OrderIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Announced orders.

    Attributes:
        order_ids: Their IDs.
        origin: The program that enqueues them, up to 100 printable characters. The queue has `key:`, the key's name and
            `:` before it.
        source: The same, as earlier clients name it.
        express: Whether workers are to read them before those that wait.
    """

    order_ids: Annotated[list[OrderId], msgspec.Meta(min_length=1, max_length=_MOST_IDS)]
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    source: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    express: bool = False


_DOCUMENTATION = Documentation(
    text="Enqueues order IDs. 202 means that the queue has them, with the durability of `INGEST_DURABILITY`.\n\n"
    "As JSON, all IDs are accepted or none, unless Redis becomes unavailable or the queue full between steps of 500. Then "
    "send the request again.\n\n"
    "As NDJSON, each line is an order ID as plain text, an order ID as a JSON string, or an object with `order_id` and an optional "
    '`origin`. An ID that begins with `"`, `{` or `[`, or is a JSON literal other than an integer of digits (such as `null`, `NaN` or `1e3`), '
    "has to be a JSON string. A body may contain up to 100,000 lines "
    "of up to 1,024 bytes. Lines are accepted as they come. In an error, `accepted` and `duplicates` count the orders that were "
    "accepted before it, and `line` is the invalid line. Continue after them. A body without any order, such as an empty file, is "
    "rejected (`no_orders`).",
    parameters=[
        Parameter(
            "Idempotency-Key",
            "header",
            "A string in quotes that identifies this request for 24 hours. A repeated request gets the same response and has no effect.",
            {"type": "string", "pattern": '^"[A-Za-z0-9._~:/+=@-]{1,200}"$'},
        )
    ],
    bodies={
        JSON: OrderIds,
        NDJSON: {"type": "string", "description": "One order on each line."},
    },
    status=202,
    response="The orders are in the queue.",
    schema=ACCEPTED,
    problems={
        400: "The body is not JSON, or the Idempotency-Key is malformed.",
        409: "The first request with this Idempotency-Key has not been answered yet.",
        415: "The body is neither JSON nor NDJSON, or is compressed.",
        422: "The body contains no orders, an ID is invalid (`index` or `line` is its position), or the Idempotency-Key was used "
        "for another payload.",
    },
)


@dataclass(frozen=True, slots=True)
class Announcing:
    """The route.

    Attributes:
        queueing: Enqueues orders.
        idempotency: Responds to repeated requests.
        limits: The limits of bodies.
    """

    queueing: Queueing
    idempotency: Idempotency
    limits: BodyLimits

    def routes(self) -> Sequence[Route]:
        """The route."""
        return [Route("POST", _PATH, "orders.announce", self.announce, _DOCUMENTATION)]

    async def announce(self, request: web.Request, caller: Caller) -> web.Response:
        """Enqueue order IDs."""
        if request.content_type == NDJSON:
            return accepted_response(await self._announce_lines(request, caller))
        if request.content_type != JSON:
            raise Problem(415, "content_type", f"the body must be {JSON} or {NDJSON}")
        body = await read_body(request, self.limits)
        given = decoded(body, OrderIds)
        key = key_of(request.headers)
        if key is None:
            return accepted_response(await self._announce_ids(given, caller, None))

        async def fingerprint() -> str:
            return digest_of(body)

        work = partial(self._announce_ids, given, caller)
        return accepted_response(await self.idempotency.once(name_of(caller.name, _PATH, key), fingerprint, work))

    async def _announce_ids(self, given: OrderIds, caller: Caller, call: Begun | None) -> Accepted:
        key = None if call is None else call.name
        try:
            return await self.queueing.announce(_orders(given, caller), key=key, express=given.express)
        except InvalidOrderId:
            raise _invalid_id(given.order_ids) from None

    async def _announce_lines(self, request: web.Request, caller: Caller) -> Accepted:
        refuse_encoding(request.headers)
        key = key_of(request.headers)
        lines = Lines(request, self.limits)
        if key is None:
            return await self._announce_batches(lines, caller, None)
        name = name_of(caller.name, f"{_PATH} {NDJSON}", key)
        return await self.idempotency.once(name, lines.fingerprint, partial(self._announce_batches, lines, caller))

    async def _announce_batches(self, lines: Lines, caller: Caller, call: Begun | None) -> Accepted:
        accepted = duplicates = number = 0
        try:
            async with aclosing(lines.batches()) as batches:
                async for batch in batches:
                    # The body may take many times INGEST_API_BODY_TIMEOUT, and the key may be revoked in that time.
                    caller.check(Scope.ENQUEUE)
                    key = None if call is None else f"{call.name}:{number}"
                    added = await self.queueing.announce(_with_origins(batch, caller), key=key)
                    accepted, duplicates, number = accepted + added.accepted, duplicates + added.duplicates, number + 1
                    if call is not None:
                        # The next batch has INGEST_API_BODY_TIMEOUT to come.
                        await self.idempotency.extend(call)
        except Problem as problem:
            # Queued orders stay queued, and the caller continues behind them.
            problem.members |= {"accepted": accepted, "duplicates": duplicates}
            raise
        if not number:
            # Like an empty list, because a failed export must not pass for an enqueued one.
            detail = "the body contains no order: write one in each line"
            raise Problem(422, "no_orders", detail, accepted=0, duplicates=0)
        return Accepted(accepted, duplicates)


def _orders(given: OrderIds, caller: Caller) -> Orders:
    origin = given.origin or given.source
    if origin is None:
        return given.order_ids
    try:
        return [Announcement(order_id, origin=_origin(caller, origin)) for order_id in given.order_ids]
    except InvalidAnnouncement as error:
        raise Problem(422, "invalid_body", str(error)) from error


def _with_origins(batch: Batch, caller: Caller) -> Batch:
    return [
        replace(order, origin=_origin(caller, order.origin)) if isinstance(order, Announcement) else order
        for order in batch
    ]


def _origin(caller: Caller, given: str | None) -> str:
    """The origin of an order. A client chooses its last part, and cannot pass for a webhook or another key."""
    return f"key:{caller.name}:{given}"


def _invalid_id(order_ids: Sequence[str]) -> Problem:
    for index, order_id in enumerate(order_ids):
        try:
            parse_order_id(order_id)
        except InvalidOrderId as error:
            return Problem(422, "invalid_order_id", str(error), index=index)
    raise ValueError("all IDs are valid")
