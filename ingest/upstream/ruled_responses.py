"""Applies the rules for responses, before a status or a document is interpreted in the usual way."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import assert_never

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, PostponedFault, ThrottledFault, TransientFault
from ingest.domain.fetch.response_body import Found, ResponseBody, number_of
from ingest.domain.fetch.response_rules import Delay, Meaning, ResponseRule, first_match
from ingest.upstream.http.replacement import Send
from ingest.upstream.http.transport import Method, NoDocument, OnHead
from ingest.upstream.notices import Notice, OnNotice, denied_notice, ignored_notice
from ingest.upstream.quota.point_rate import cost_of
from ingest.upstream.responses import LONGEST_WAIT, api_time, retry_after, until_quota

ERROR_BODY = 64 * 1024
"""Bytes of the body of a response without a document that rules apply to."""
_ERROR = 400
# Larger numbers are a time since 1970, not a duration.
_SINCE_1970 = 1e9


class RuledResponse(NoDocument):
    """A response to which a rule gives another meaning than its status.

    Attributes:
        fault: its meaning.
    """

    def __init__(self, status: int, headers: Mapping[str, str], fault: Fault) -> None:
        super().__init__(status, headers)
        self.fault = fault


class RuledRequest:
    """One request whose response is subject to rules.

    Args:
        rules: in the order in which they are checked.
        at: time of the request, for a server that sends none.
        on_head: see `Transport`.
        on_notice: called with the errors that a document states, if a rule accepts it nevertheless.
    """

    def __init__(
        self,
        rules: Sequence[ResponseRule],
        at: datetime,
        on_head: OnHead | None,
        on_notice: OnNotice = ignored_notice,
    ) -> None:
        self._rules = rules
        self._on_notice = on_notice
        self._at = at
        self._on_head = on_head
        self._status = 200
        self._headers: Mapping[str, str] = {}

    async def send(self, send: Send, url: str, headers: Mapping[str, str], method: Method, body: bytes | None) -> bytes:
        """Send the request by the method `send` of a transport, and return the document. See `Transport`.

        Raises:
            RuledResponse: a rule gives the response another meaning.
        """
        other: NoDocument | None = None
        try:
            received = await send(url, headers, method, body, self._note)
        except NoDocument as response:
            other = response
            self._status, self._headers, received = response.status, response.headers, response.body
        fault = self._fault_of(received)
        if fault is not None:
            raise RuledResponse(self._status, self._headers, fault)
        if other is not None:
            raise other
        return received

    def _note(self, status: int, headers: Mapping[str, str]) -> None:
        self._status, self._headers = status, headers
        if self._on_head is not None:
            self._on_head(status, headers)

    def _fault_of(self, received: bytes) -> Fault | None:
        body = ResponseBody(received)
        rule = first_match(self._rules, self._status, self._headers, body)
        if rule is None:
            return None
        stated = body.errors() if rule.reads_errors or self._status >= _ERROR else ""
        if rule.meaning is Meaning.DOCUMENT and stated:
            self._on_notice(Notice.DENIED, denied_notice(stated))
        error = f"HTTP {self._status}, by the rule {rule.name}"
        return _fault_of(
            rule,
            f"{error}: {stated}" if stated else error,
            self._delay_of(rule.delay, body),
            lambda: self._wait(received),
        )

    def _delay_of(self, delay: Delay, body: ResponseBody) -> float | None:
        """The seconds that the response asks for, at most a day, or else the fixed ones of the rule."""
        now = api_time(self._headers, self._at)
        found: Sequence[Found] = ()
        if delay.steps is not None:
            found = body.values(delay.steps) or ()
        elif delay.header is not None and (text := self._headers.get(delay.header)) is not None:
            # A date has no unit.
            date = retry_after(text, now) if number_of(text) is None else None
            found = (text,) if date is None else (date / delay.unit,)
        for value in found:
            number = number_of(value)
            if number is None:
                continue
            seconds = number * delay.unit
            if seconds >= _SINCE_1970:
                seconds -= now.timestamp()
            if seconds > 0:
                return min(seconds, LONGEST_WAIT)
        return delay.fixed

    def _wait(self, received: bytes) -> float | None:
        """The seconds to wait by the standard headers, or by the points that the request needs."""
        now = api_time(self._headers, self._at)
        wait = retry_after(self._headers.get("Retry-After"), now)
        wait = until_quota(self._headers, now) if wait is None else wait
        if wait is None and (cost := cost_of(received)) is not None:
            wait = min(cost.wait, LONGEST_WAIT) or None
        return wait


def _fault_of(
    rule: ResponseRule, error: str, after: float | None, standard_wait: Callable[[], float | None]
) -> Fault | None:
    match rule.meaning:
        case Meaning.RETRY:
            return PostponedFault(error, after)
        case Meaning.THROTTLED:
            return ThrottledFault(error, standard_wait() if after is None else after)
        case Meaning.CREDENTIAL:
            return CredentialFault(f"{error}: the external API rejects our credential")
        case Meaning.OUTAGE:
            # As if the API could not be reached, because no order can be at fault.
            return TransientFault(f"{error}: the external API is unavailable", reached=False)
        case Meaning.NOT_FOUND:
            return PermanentFault(DeadReason.NOT_FOUND, error, is_configured=True)
        case Meaning.REJECTED:
            return PermanentFault(DeadReason.REJECTED, error, is_configured=True)
        case Meaning.DOCUMENT:
            return None
        case _:
            assert_never(rule.meaning)
