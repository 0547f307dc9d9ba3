"""Sends requests to the external API through one transport, and classifies each response.

All requests to the API go through `ApiSession.send`: those for one order or several, and probes. It adds the credential, follows
redirects within the origin, counts the request, and returns a document or a `Failed`.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, TransientFault, TransportFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.clean_json import clean_json, ignored
from ingest.telemetry.shared_metrics import Histogram
from ingest.upstream.access.endpoint import Credential, Endpoint, FixedCredential, headers_with
from ingest.upstream.attempts import Attempts, observed
from ingest.upstream.conditions import UNCONDITIONAL, Conditions
from ingest.upstream.http.redirects import MAX_REDIRECTS, RefusedRedirect, redirect_target, repeats_method
from ingest.upstream.http.replacement import ReplaceableTransport
from ingest.upstream.http.transport import Method, NoDocument, NoResources, NoResponse, OnHead, TooLarge
from ingest.upstream.notices import noticing
from ingest.upstream.responses import code_of, fault_of, is_truncated
from ingest.upstream.ruled_responses import RuledRequest, RuledResponse
from ingest.upstream.unanswered import Unanswered

Requests = tuple[FetchRequest, ...]


def utc_now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)


class ApiSession:
    """Requests to the external API.

    Args:
        transport: sends them.
        endpoint: the method of requests, the meaning of responses, and whether a client certificate identifies us.
        body_limit: the most bytes of a document, for messages. The transport applies it.
        seconds: request duration histograms by code.
        now: the clock for the time of a fetch, the same for all workers, because the later fetch wins.
        conditions: of each request.
        on_replaced: called for each document in which characters were replaced, see `clean_json`.
    """

    def __init__(
        self,
        transport: ReplaceableTransport,
        endpoint: Endpoint,
        body_limit: int,
        seconds: dict[str, Histogram],
        *,
        credential: Credential | None = None,
        now: Callable[[], datetime] = utc_now,
        conditions: Conditions = UNCONDITIONAL,
        attempts: Attempts | None = None,
        on_replaced: Callable[[], None] = ignored,
    ) -> None:
        self._transport = transport
        self._body_limit = body_limit
        self._seconds = seconds
        self._credential = credential or FixedCredential()
        self._method = endpoint.method
        self._statuses = endpoint.statuses
        self._rules = endpoint.responses
        self._with_certificate = endpoint.access.tls.cert is not None
        self._now = now
        self._on_replaced = on_replaced
        self._on_notice = conditions.on_notice
        self._quota = conditions.quota
        self._admit = conditions.admit
        self._attempts = attempts
        self.unanswered = Unanswered()

    async def send(
        self,
        requests: Requests,
        url: str,
        body: bytes | None = None,
        method: Method | None = None,
        *,
        on_head: OnHead | None = None,
        empty_status: int | None = None,
    ) -> Fetched | Failed:
        """Send a request for these orders, and once more after a redirect or with a renewed credential.

        Return the response with the start time of its request, or the reason why there is no whole document.

        Args:
            requests: for orders. One without an ID for a request that belongs to no order.
            url: percent-encoded.
            body: of a POST.
            method: of the request, if it is not the endpoint's.
            on_head: called with the status and the headers of a response with a document.
            empty_status: a status that means an empty document, and is no fault.
        """
        exchange = Exchange(requests, time.monotonic())
        method = method or self._method
        redirects, renewals = MAX_REDIRECTS, 1
        try:
            while True:
                # Before the clocks are read, because the request begins when it may be sent.
                headers = await self._admitted()
                requested_at, exchange = self._now(), Exchange(requests, time.monotonic())
                response = await self._exchange(exchange, url, headers, method, body, on_head)
                if isinstance(response, bytes):
                    return Fetched(clean_json(response, self._on_replaced), requested_at, exchange)
                if response.status == empty_status and not isinstance(response, RuledResponse):
                    if on_head is not None:
                        on_head(response.status, response.headers)
                    return Fetched(b"", requested_at, exchange)
                target = _target(url, response)
                if target is not None:
                    if not redirects:
                        return Failed(TransientFault(f"more than {MAX_REDIRECTS} redirects"), exchange)
                    url, redirects = target, redirects - 1
                    if not repeats_method(method, response.status):
                        method, body = "GET", None
                elif _may_be_renewed(response) and renewals and await self._credential.renew(headers):
                    renewals -= 1
                else:
                    return Failed(self._fault_of(response, requested_at), exchange)
        except Fault as fault:
            # Its traceback would keep the document in memory.
            return Failed(fault.with_traceback(None), exchange)

    async def headers(self) -> Mapping[str, str]:
        """Return the headers of the next request. Raises `Fault` without a credential."""
        headers = self._credential.headers
        return await self._credential.obtain() if headers is None else headers

    async def _admitted(self) -> Mapping[str, str]:
        """Wait until a request may be sent, and return its headers."""
        if self._admit is not None:
            await self._admit()
        # Without a credential, a request must not use up the quota.
        headers, quota = await self.headers(), self._quota
        if quota is None:
            return headers
        await quota.acquire()
        try:
            # The source may have been paused, and a token may have expired, while the request waited.
            if self._admit is not None:
                await self._admit()
            return await self.headers()
        except BaseException:
            quota.release()
            raise

    async def _exchange(
        self,
        exchange: Exchange,
        url: str,
        headers: Mapping[str, str],
        method: Method,
        body: bytes | None,
        on_head: OnHead | None,
    ) -> bytes | NoDocument:
        """Send one request, and return a whole document or a response without one.

        Raises:
            Fault: there is neither.
        """
        code, quota, send = "error", self._quota, self._transport.send
        if (traceparent := exchange.requests[0].traceparent) is not None:
            headers = headers_with(headers, {"traceparent": traceparent})
        self.unanswered.begin(exchange.started_at)
        try:
            sending = send if quota is None else quota.watched(send)
            on_head = _both(None if quota is None else quota.observe, on_head)
            on_head = _both(noticing(self._on_notice, url), on_head)
            request = (
                RuledRequest(self._rules, self._now(), on_head, self._on_notice).send(
                    sending, url, headers, method, body
                )
                if self._rules
                else sending(url, headers, method, body, on_head)
            )
            document = await (request if self._attempts is None else observed(self._attempts, request))
        except NoDocument as response:
            code = code_of(response.status)
            return response
        except TooLarge:
            code = "2xx"
            error = f"the body is larger than {self._body_limit} bytes"
            raise PermanentFault(DeadReason.INVALID_ORDER, error) from None
        except NoResponse as reason:
            code = "timeout" if reason.timed_out else "error"
            raise self._without_response(reason) from reason
        except Exception as bug:  # a bug in the transport is the fault of neither the order nor the external API
            await self._transport.replace(send, bug)
            raise TransportFault(f"our HTTP client failed: {type(bug).__name__}") from bug
        else:
            if is_truncated(document):
                error = f"the document is truncated after {len(document)} bytes"
                raise TransientFault(error, reason=RetryReason.TRUNCATED)
            code = "2xx"
            return document
        finally:
            ended_at = time.monotonic()
            self.unanswered.end(ended_at, timed_out=code == "timeout")
            self._seconds[code].observe(ended_at - exchange.started_at)
            if quota is not None:
                quota.release()

    def _fault_of(self, response: NoDocument, at: datetime) -> Fault:
        if isinstance(response, RuledResponse):
            return response.fault
        return fault_of(response.status, response.headers, at, self._statuses, with_certificate=self._with_certificate)

    def _without_response(self, reason: NoResponse) -> TransientFault:
        if isinstance(reason, NoResources):
            self._transport.report(reason)
            return TransportFault(f"our HTTP client failed: {reason}")
        text = str(reason) if not reason.timed_out else f"no response in time ({reason})"
        retry = RetryReason.TIMEOUT if reason.timed_out else RetryReason.CONNECTION
        return TransientFault(text, reached=reason.reached, reason=retry)


def _both(first: OnHead | None, second: OnHead | None) -> OnHead | None:
    if first is None or second is None:
        return first or second

    def both(status: int, headers: Mapping[str, str]) -> None:
        first(status, headers)
        second(status, headers)

    return both


def _target(url: str, response: NoDocument) -> str | None:
    """Return the target of a redirect, or None if the response is none."""
    if isinstance(response, RuledResponse):
        return None
    try:
        return redirect_target(url, response.status, response.headers.get("Location"))
    except RefusedRedirect as refused:
        raise TransientFault(f"HTTP {response.status}: the redirect is not followed: it {refused}") from None


def _may_be_renewed(response: NoDocument) -> bool:
    """Return whether the credential may have expired."""
    if isinstance(response, RuledResponse):
        return isinstance(response.fault, CredentialFault)
    return response.status == 401
