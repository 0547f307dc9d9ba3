"""`POST /v1/webhooks/{webhook}` checks, counts and logs webhooks, and enqueues the orders for their sources. GET verifies its URL."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter, object_schema
from ingest.api.http.failures import busy
from ingest.api.http.json_responses import JSON, json_response
from ingest.api.http.log_limit import LogLimit
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits, read_body
from ingest.api.http.routing import Caller, Route
from ingest.api.webhooks.challenge import DeniedChallenge, NoChallenge
from ingest.api.webhooks.reception import ReceivedOrders, Refused, read_webhook
from ingest.api.webhooks.webhook import Webhook
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.errors import Unavailable
from ingest.domain.operating.service_report import WebhookCounts
from ingest.domain.webhook_result import WebhookResult
from ingest.operations.control.producer_admission import ProducerAdmission
from ingest.queue.produce.producer import Producer
from ingest.queue.produce.producer_errors import IdempotencyKeyReused, SourcePaused
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("webhooks")

# A body takes about 8 ms for each MB. Larger ones are read in a thread, so that other requests are not delayed.
_LARGE = 256 * 1024
# Shopify gives up after five seconds.
_ANSWER_WITHIN = 2.0
# Seconds between two log lines for one webhook and reason, because clients without the secret can send many requests.
_LOG_EVERY = 60.0
_STATUS = {
    WebhookResult.BAD_SIGNATURE: 401,
    WebhookResult.EXPIRED: 401,
    WebhookResult.MALFORMED: 422,
}

TEXT_PLAIN = "text/plain"
# Seconds until a sender tries again whose secret cannot be read.
_NO_SECRET = 30.0
_PATH = "/v1/webhooks/{webhook}"
_WEBHOOK = Parameter("webhook", "path", "The webhook's name.", is_required=True)
_CHALLENGE = Documentation(
    summary="Verify the URL of a webhook",
    text="For senders that verify the URL before they send events, see the key `challenge` of the webhook. The response is the challenge, "
    'or `{"challengeResponse": …}` if the webhook declares an `endpoint`.',
    parameters=[_WEBHOOK],
    response="The response to the challenge.",
    schema=object_schema("challengeResponse", challengeResponse=TEXT),
    others={TEXT_PLAIN: TEXT},
    problems={
        400: "The query contains no challenge.",
        403: "The query does not contain the token of the webhook.",
        404: "There is no such webhook.",
        405: "The webhook declares no challenge.",
    },
)
_DOCUMENTATION = Documentation(
    summary="Receive a webhook",
    text="For the senders in the file of `INGEST_WEBHOOKS`, or in the tables `[sources.NAME.webhook]` of the sources file, whose "
    "names are those of their sources. The signature takes the place of an API key.",
    parameters=[_WEBHOOK],
    bodies={JSON: {}},
    response="The webhook has been accepted, or needs nothing to be done.",
    schema=object_schema("result", result={"enum": ["accepted", "duplicate", "ignored"]}),
    problems={
        401: "The signature is missing or wrong, or the webhook is too old.",
        404: "There is no such webhook.",
        415: "The body is compressed.",
        422: "The body is signed, but announces no order that can be read.",
    },
)


@dataclass(frozen=True, slots=True)
class Receiver:
    """A webhook with the queue of its source.

    Attributes:
        webhook: The webhook that may be sent.
        source: The name of its source.
        producer: Enqueues its orders.
        accepted: Counts enqueued orders.
        admission: Rejects the orders of a paused source.
        coalesce: Seconds in which an order that still waits is not queued again, unless the webhook sets it.
        skips: Whether the mapping of the source skips a document, because the shop does not count it as an order.
    """

    webhook: Webhook
    source: str
    producer: Producer
    accepted: Counter
    admission: ProducerAdmission
    coalesce: float
    skips: Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class WebhookRoutes:
    """The routes of all webhooks.

    Attributes:
        receivers: The receivers by the name of the webhook.
        limits: The limits of bodies.
        counters: The counters by webhook and result.
        unusable: The names of sources whose configuration is rejected. They may have a webhook.
        reported: The counts by source that this process reports to the other views.
    """

    receivers: Mapping[str, Receiver]
    limits: BodyLimits
    counters: Mapping[tuple[str, str], Counter]
    unusable: Collection[str] = ()
    reported: dict[str, WebhookCounts] = field(default_factory=dict)
    log_limit: LogLimit = field(default_factory=lambda: LogLimit(_LOG_EVERY))

    def routes(self) -> Sequence[Route]:
        """The routes. Signatures take the place of API keys."""
        return [
            Route("POST", _PATH, None, self.receive, _DOCUMENTATION),
            Route("GET", _PATH, None, self.verify, _CHALLENGE),
        ]

    async def receive(self, request: web.Request, _: Caller) -> web.Response:
        """Respond to one request."""
        receiver = self._receiver(request)
        if not receiver.webhook.secrets.keys:
            refused = Refused(WebhookResult.UNAVAILABLE, "no_secret", "the files of its secrets cannot be read")
            self._count(receiver, refused.result)
            self._log_refused(receiver, refused)
            raise busy(503, refused.code, "the webhook has no secret right now", _NO_SECRET)
        try:
            body = await read_body(request, self.limits)
        except Problem as problem:
            is_busy = problem.status == HTTPStatus.SERVICE_UNAVAILABLE
            self._count(receiver, WebhookResult.UNAVAILABLE if is_busy else WebhookResult.MALFORMED)
            raise
        try:
            announced = await self._read(receiver, request, body)
        except Refused as refused:
            self._count(receiver, refused.result)
            self._log_refused(receiver, refused)
            raise _problem(refused) from None
        result = WebhookResult.IGNORED if announced is None else await self._announce(receiver, announced)
        self._count(receiver, result)
        if announced is not None and announced.problem is not None:
            # Its other orders are in the queue. The sender would only send the same again.
            self._count(receiver, announced.problem.result)
            self._log_refused(receiver, announced.problem)
        return json_response({"result": result})

    async def verify(self, request: web.Request, _: Caller) -> web.Response:
        """Respond to the challenge by which a sender verifies the URL."""
        receiver = self._receiver(request)
        challenge = receiver.webhook.challenge
        if challenge is None:
            raise Problem(405, "method_not_allowed", "allowed here: POST", headers={"Allow": "POST"})
        try:
            response = challenge.response(request.query)
        except NoChallenge as error:
            is_denied = isinstance(error, DeniedChallenge)
            refused = Refused(
                WebhookResult.BAD_SIGNATURE if is_denied else WebhookResult.MALFORMED, "bad_challenge", str(error)
            )
            self._count(receiver, refused.result)
            self._log_refused(receiver, refused)
            raise Problem(403 if is_denied else 400, refused.code, refused.detail) from None
        self._count(receiver, WebhookResult.IGNORED)
        return web.Response(text=response.text, content_type=JSON if response.is_json else TEXT_PLAIN)

    def _receiver(self, request: web.Request) -> Receiver:
        name = request.match_info["webhook"]
        receiver = self.receivers.get(name)
        if receiver is None and name in self.unusable:
            # The sender tries again. After a 404, some senders remove the webhook.
            self.reported.setdefault(name, WebhookCounts()).reject(code := "unusable_configuration", time.time())
            raise busy(503, code, "the configuration of the source cannot be used", _NO_SECRET)
        if receiver is None:
            # Before the body is read, because bodies of arbitrary clients would take the memory of signed ones.
            raise Problem(404, "unknown_webhook", "there is no such webhook")
        return receiver

    async def _read(self, receiver: Receiver, request: web.Request, body: bytes) -> ReceivedOrders | None:
        if len(body) < _LARGE:
            return _read(receiver, request, body, time.time())
        return await asyncio.to_thread(_read, receiver, request, body, time.time())

    async def _announce(self, receiver: Receiver, announced: ReceivedOrders) -> WebhookResult:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                await receiver.admission.admit(receiver.source)
                accepted = await self._queue(receiver, announced)
        except (Unavailable, TimeoutError) as error:
            problem = str(error) or f"no answer within {_ANSWER_WITHIN:g} s"
            code = "source_paused" if isinstance(error, SourcePaused) else "queue_unavailable"
            refused = Refused(WebhookResult.UNAVAILABLE, code, problem)
            self._count(receiver, refused.result)
            self._log_refused(receiver, refused)
            detail = "the order cannot be queued right now"
            raise busy(503, refused.code, detail, getattr(error, "retry_after", 1.0)) from error
        receiver.accepted.inc(accepted.accepted)
        return WebhookResult.ACCEPTED if accepted.accepted else WebhookResult.DUPLICATE

    async def _queue(self, receiver: Receiver, announced: ReceivedOrders) -> Accepted:
        declared = receiver.webhook.declared
        coalesce = receiver.coalesce if declared.coalesce is None else declared.coalesce
        announce = receiver.producer.try_announce
        orders = announced.announcements
        key = announced.idempotency_key
        try:
            return await announce(
                orders, idempotency_key=key, express=declared.express, coalesce=coalesce, count_repeats=True
            )
        except IdempotencyKeyReused:
            # The sender has given one ID to two orders, or to two states of an order. An additional entry has no effect.
            return await announce(orders, express=declared.express, coalesce=coalesce)

    def _count(self, receiver: Receiver, result: WebhookResult) -> None:
        self.counters[receiver.webhook.name, result].inc()
        if result in {WebhookResult.ACCEPTED, WebhookResult.DUPLICATE, WebhookResult.IGNORED}:
            self.reported.setdefault(receiver.source, WebhookCounts()).accepted_at = time.time()

    def _log_refused(self, receiver: Receiver, refused: Refused) -> None:
        """Count the reason, and log it once a minute for each webhook and reason."""
        name = receiver.webhook.name
        self.reported.setdefault(receiver.source, WebhookCounts()).reject(refused.code, time.time())
        if not self.log_limit.is_due(name, refused.code):
            return
        # A signed request that cannot be read cannot be read when it is sent again. The webhook's table has to be changed.
        log = _log.error if refused.result is WebhookResult.MALFORMED else _log.warning
        log("webhook_refused", webhook=name, source=receiver.source, reason=refused.code, problem=refused.detail)


def _read(receiver: Receiver, request: web.Request, body: bytes, now: float) -> ReceivedOrders | None:
    """The orders in a request, or None if it contains none, or an order that does not count."""
    received = read_webhook(receiver.webhook, request.headers, body, now)
    return None if received is not None and receiver.skips(body) else received


def _problem(refused: Refused) -> Problem:
    status = 400 if refused.code == "invalid_json" else _STATUS[refused.result]
    headers = {"WWW-Authenticate": "Signature"} if status == 401 else None
    return Problem(status, refused.code, refused.detail, headers=headers)
