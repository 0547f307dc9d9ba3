"""The calls that wait for the next bulk requests, in groups that share a request.

Calls with different limits do not share a request. After a request has failed, its orders are isolated from others, with half the number in each
request.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order_id import quoted_ids

# Servers should read request lines of 8,000 octets (RFC 9112, section 3). The method and the version need some of them.
_LONGEST_URL = 7_900


@dataclass(slots=True)
class WaitingCall:
    """One order that a caller waits for.

    Attributes:
        request: the order.
        ended: gets the result, and is cancelled when the caller stops waiting.
        is_missing: whether it was missing from a response with other requested orders.
    """

    request: FetchRequest
    ended: asyncio.Future[Fetched | Failed]
    is_missing: bool = False

    def end(self, result: Fetched | Failed) -> None:
        """Return the result to the caller, if it still waits."""
        if not self.ended.done():
            self.ended.set_result(result)


class WaitingCalls:
    """Calls in the order of their arrival, in groups that do not mix.

    Args:
        size: orders in a request.
        length: of the URL without IDs.
    """

    def __init__(self, size: int, length: int) -> None:
        self._size = size
        self._room = max(0, _LONGEST_URL - length)
        self._groups: dict[tuple[int, bool], list[WaitingCall]] = {}

    def __bool__(self) -> bool:
        """Whether any call waits."""
        return bool(self._groups)

    @property
    def fills_request(self) -> bool:
        """Whether there are as many calls as one request takes."""
        return any(len(calls) >= size for (size, _), calls in self._groups.items())

    def add(self, call: WaitingCall) -> None:
        """Let a call wait for the next request of its group."""
        size = min(call.request.together or self._size, self._size)
        self._groups.setdefault((size, call.is_missing), []).append(call)

    def take(self) -> Sequence[WaitingCall]:
        """Remove and return the calls of the next request, or none if no call waits.

        Groups take turns. Calls for one order count once. Callers that have left are dropped.
        """
        for key in list(self._groups):
            calls = [call for call in self._groups.pop(key) if not call.ended.done()]
            taken, rest = self._divide(calls, key[0])
            if rest:
                self._groups[key] = rest
            if taken:
                return taken
        return ()

    def _divide(self, calls: list[WaitingCall], size: int) -> tuple[list[WaitingCall], list[WaitingCall]]:
        """The calls that go together, and those that go later."""
        order_ids: set[str] = set()
        left = self._room
        for index, call in enumerate(calls):
            order_id = call.request.order_id
            if order_id in order_ids:
                continue
            left -= len(quoted_ids(order_id)) + 1
            if order_ids and (len(order_ids) == size or left < 0):
                return calls[:index], calls[index:]
            order_ids.add(order_id)
        return calls, []
