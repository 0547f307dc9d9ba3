"""Routes that take orders into the queue."""

import math
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from aiohttp import web

from ingest.api.problems import Problem
from ingest.api.requests import BodyLimits, check_encoding, read_body
from ingest.api.routing import Caller, Route, Scope
from ingest.domain.accepted import Accepted
from ingest.domain.announcement import Announcement, InvalidAnnouncement
from ingest.domain.errors import QueueUnavailable
from ingest.domain.order import InvalidOrderId, parse_order_id
from ingest.queue.connection import QueueFull, QueueRefused
from ingest.queue.producer import BacklogFull, Producer
from ingest.queue.producer_errors import IdempotencyKeyReused, InvalidIdempotencyKey
from ingest.queue.submission import Orders
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("api")
_JSON = "application/json"
# More go by NDJSON, which is read in pieces.
_MOST_IDS = 10_000


class OrderIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Announced orders.

    Attributes:
        order_ids: their IDs.
        source: which program announces them: up to 100 printable characters.
        express: whether workers are to read them before those that wait.
    """

    order_ids: list[str]
    source: str | None = None
    express: bool = False


_decode = msgspec.json.Decoder(OrderIds).decode


class Announcing:
    """`POST /v1/orders`.

    Args:
        producer: takes orders into the queue.
        limits: of bodies.
        accepted: counts what has been put into the queue.
    """

    def __init__(self, producer: Producer, limits: BodyLimits, accepted: Counter) -> None:
        self._producer = producer
        self._limits = limits
        self._accepted = accepted

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [Route("POST", "/v1/orders", Scope.ENQUEUE, self.announce)]

    async def announce(self, request: web.Request, caller: Caller) -> web.Response:
        """Take a list of order IDs: all of them, or none."""
        del caller
        check_encoding(request.headers)
        if request.content_type != _JSON:
            raise Problem(415, "content_type", "the body must be application/json")
        given = _parse(await read_body(request, self._limits))
        orders = _orders(given)
        accepted = await queued(lambda: self._producer.try_enqueue(orders, express=given.express))
        self._accepted.inc(accepted)
        return answer(Accepted(accepted, 0))


def answer(accepted: Accepted) -> web.Response:
    """202: the orders are in the queue."""
    return web.Response(
        body=b'{"accepted":%d,"duplicates":%d}' % (accepted.accepted, accepted.duplicates),
        status=202,
        content_type=_JSON,
    )


async def queued(announce: Callable[[], Awaitable[int]]) -> int:
    """Announce orders, and say why if they cannot be accepted.

    Raises:
        Problem: 400, 422, 429 or 503.
    """
    try:
        return await announce()
    except InvalidIdempotencyKey as error:
        raise Problem(400, "invalid_idempotency_key", str(error)) from error
    except IdempotencyKeyReused as error:
        raise Problem(422, "idempotency_key_reused", str(error)) from error
    except BacklogFull as error:
        raise _busy(429, "backlog_full", str(error), error.retry_after) from error
    except QueueFull as error:
        raise _busy(429, "queue_full", "the queue is out of memory", error.retry_after) from error
    except QueueUnavailable as error:
        if isinstance(error, QueueRefused):
            _log.error("unavailable", server="redis", error=str(error))
        raise _busy(503, "queue_unavailable", "the queue cannot be used right now", error.retry_after) from error


def _busy(status: int, code: str, detail: str, retry_after: float) -> Problem:
    return Problem(status, code, detail, headers={"Retry-After": str(max(1, math.ceil(retry_after)))})


def _parse(body: bytes) -> OrderIds:
    try:
        given = _decode(body)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid_body", str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "invalid_json", "the body is not JSON in UTF-8") from error
    if not 0 < len(given.order_ids) <= _MOST_IDS:
        raise Problem(422, "invalid_body", f"order_ids must have 1 to {_MOST_IDS:,} IDs; send more as NDJSON")
    return given


def _orders(given: OrderIds) -> Orders:
    for index, order_id in enumerate(given.order_ids):
        try:
            parse_order_id(order_id)
        except InvalidOrderId as error:
            raise Problem(422, "invalid_order_id", str(error), index=index) from error
    if given.source is None:
        return given.order_ids
    try:
        return [Announcement(order_id, source=given.source) for order_id in given.order_ids]
    except InvalidAnnouncement as error:
        raise Problem(422, "invalid_body", str(error)) from error
