"""Sends requests to the external API through one transport, and says what each response means.

Whatever is asked of the API goes through `ApiSession.send`: the document of one order, those of several, and probes. It adds the
credential, follows redirects within the origin, counts the request, and raises a `Fault` for everything but a document.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.errors import Fault, PermanentFault, TransientFault, TransportFault
from ingest.domain.fetch.exchange import Exchange, Fetched, FetchRequest
from ingest.domain.orders.clean_json import clean_json, ignored
from ingest.telemetry.shared_metrics import Histogram
from ingest.upstream.access.credential import Credential, FixedCredential, headers_with
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.http.redirects import MAX_REDIRECTS, RefusedRedirect, redirect_target, repeats_method
from ingest.upstream.http.replacement import ReplaceableTransport
from ingest.upstream.http.transport import Method, NoDocument, NoResources, NoResponse, TooLarge
from ingest.upstream.responses import code_of, fault_of, is_truncated

if TYPE_CHECKING:
    from ingest.upstream.quota.quota import FleetQuota

Requests = tuple[FetchRequest, ...]
Again = Callable[[TransientFault, Requests, str, bytes | None, Method | None], Awaitable[Fetched]]
"""Called with the fault and the arguments of `ApiSession.send`."""


async def raised(fault: TransientFault, *_: object) -> Fetched:
    """Raise the fault: there is no other try."""
    raise fault


def utc_now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was answered without a document.

    Attributes:
        requests: what it was sent for.
        renewals: how often the credential may still be renewed.
        asked_at: when it was sent.
        started: the same, in monotonic seconds.
    """

    requests: Requests
    url: str
    method: Method
    body: bytes | None
    headers: Mapping[str, str] = field(repr=False)
    redirects: int
    renewals: int
    asked_at: datetime
    started: float


class ApiSession:
    """Requests to the external API.

    Args:
        transport: sends them.
        endpoint: the method of requests, the meaning of statuses, and whether a client certificate identifies us.
        body_limit: bytes of a document, for messages; the transport applies it.
        seconds: request duration histograms by code.
        credential: their headers.
        now: the clock for the time of a fetch; the same for all workers, as the later fetch wins.
        quota: each request waits for it; None: unlimited.
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
        quota: "FleetQuota | None" = None,
        on_replaced: Callable[[], None] = ignored,
    ) -> None:
        self._transport = transport
        self._body_limit = body_limit
        self._seconds = seconds
        self._credential = credential or FixedCredential()
        self._method = endpoint.method
        self._statuses = endpoint.statuses
        self._with_certificate = endpoint.access.tls.cert is not None
        self._now = now
        self._on_replaced = on_replaced
        self._quota = quota

    async def send(
        self,
        requests: Requests,
        url: str,
        body: bytes | None = None,
        method: Method | None = None,
        redirects: int = MAX_REDIRECTS,
        renewals: int = 1,
        again: Again = raised,
    ) -> Fetched:
        """Return the response, with the start time of the request that it answers.

        Args:
            requests: the orders that it is for; a fault names them in its `Exchange`.
            url: already percent-encoded.
            body: sent with a POST.
            method: another than the usual one.
            redirects: how many are followed.
            renewals: how often the credential is renewed after a 401.
            again: returns the response of another try after a failed one, or raises.

        Raises:
            Fault: anything but a whole document; its `exchange` is set.
        """
        try:
            headers, quota = self._credential.headers, self._quota
            if headers is None or quota is not None:
                # Before the clocks are read: the request begins when it may be sent.
                headers = await self._admitted(quota, requests)
            method = method or self._method
            code, asked_at, started, send = "error", self._now(), time.monotonic(), self._transport.send
            try:
                traceparent = requests[0].traceparent
                sent_headers = headers if traceparent is None else headers_with(headers, {"traceparent": traceparent})
                document = await send(url, sent_headers, method, body, quota and quota.observe)
                if document[-1:] == b"}" or not is_truncated(document):
                    code = "2xx"
                    return Fetched(clean_json(document, self._on_replaced), asked_at)
            except NoDocument as response:
                code = code_of(response.status)
                declined = response
            except TooLarge:
                code = "2xx"
                error = f"the body is larger than {self._body_limit} bytes"
                raise _in(requests, started, PermanentFault(DeadReason.INVALID_ORDER, error)) from None
            except NoResponse as reason:
                code = "timeout" if reason.timed_out else "error"
                raise _in(requests, started, self._without_response(reason)) from reason
            except Exception as bug:  # a bug in the transport is neither the order's fault nor that of the external API
                await self._transport.replace(send, bug)
                raise _in(requests, started, TransportFault(f"our HTTP client failed: {type(bug).__name__}")) from bug
            else:
                error = f"the document is truncated after {len(document)} bytes"
                del document  # the fault refers to this call, and lives longer
                raise _in(requests, started, TransientFault(error, reason=RetryReason.TRUNCATED))
            finally:
                self._seconds[code].observe(time.monotonic() - started)
                if quota is not None:
                    quota.release()
            sent = Sent(requests, url, method, body, headers, redirects, renewals, asked_at, started)
            return await self._after(declined, sent)
        except TransientFault as fault:
            # Here, as a coroutine around this one would cost every order time.
            return await again(fault, requests, url, body, method)

    async def authenticate(self) -> None:
        """Obtain the credential, unless it is there. Raises `Fault`."""
        if self._credential.headers is None:
            await self._obtain(())

    async def _after(self, response: NoDocument, sent: Sent) -> Fetched:
        """Return what the same request brings once more, at another address or with another credential, or raise the fault."""
        target = self._target(response, sent)
        if target is not None:
            method, body = (sent.method, sent.body) if repeats_method(sent.method, response.status) else ("GET", None)
            return await self.send(sent.requests, target, body, method, sent.redirects - 1, sent.renewals)
        if response.status == 401 and sent.renewals and await self._renewed(sent):
            return await self.send(sent.requests, sent.url, sent.body, sent.method, sent.redirects, sent.renewals - 1)
        fault = fault_of(
            response.status,
            response.headers,
            sent.asked_at,
            self._statuses,
            with_certificate=self._with_certificate,
        )
        raise _in(sent.requests, sent.started, fault) from None

    def _target(self, response: NoDocument, sent: Sent) -> str | None:
        """Return the target of a redirect, or None if the response is none."""
        try:
            target = redirect_target(sent.url, response.status, response.headers.get("Location"))
        except RefusedRedirect as refused:
            error = f"HTTP {response.status}: redirect refused: it {refused}"
            raise _in(sent.requests, sent.started, TransientFault(error)) from None
        if target is not None and not sent.redirects:
            raise _in(sent.requests, sent.started, TransientFault(f"more than {MAX_REDIRECTS} redirects"))
        return target

    def _without_response(self, reason: NoResponse) -> TransientFault:
        if isinstance(reason, NoResources):
            self._transport.report(reason)
            return TransportFault(f"our HTTP client failed: {reason}")
        text = str(reason) if not reason.timed_out else f"no response in time ({reason})"
        retry = RetryReason.TIMEOUT if reason.timed_out else RetryReason.CONNECTION
        return TransientFault(text, reached=reason.reached, reason=retry)

    async def _admitted(self, quota: "FleetQuota | None", requests: Requests) -> Mapping[str, str]:
        """Wait until a request may be sent; returns its headers."""
        headers = self._credential.headers
        if headers is None:
            headers = await self._obtain(requests)
        if quota is None:
            return headers
        await quota.acquire()
        try:
            # A token may have expired meanwhile.
            return self._credential.headers or await self._obtain(requests)
        except BaseException:
            quota.release()
            raise

    async def _obtain(self, requests: Requests) -> Mapping[str, str]:
        started = time.monotonic()
        try:
            return await self._credential.obtain()
        except Fault as fault:
            raise _in(requests, started, fault) from None

    async def _renewed(self, sent: Sent) -> bool:
        try:
            return await self._credential.renew(sent.headers)
        except Fault as fault:
            raise _in(sent.requests, sent.started, fault) from None


def _in(requests: Requests, started: float, fault: Fault) -> Fault:
    fault.exchange = Exchange(requests, started)
    return fault
