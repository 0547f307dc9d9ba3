"""The shop and the table of one source of a story, both with the IDs of the other sources and contents of their own."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any
from zlib import crc32

from fakes.store import MemoryStore
from fakes.upstream import MemoryUpstream, document, response
from fakes.virtual_time import now

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault, TransportFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order_row import OrderRow
from simulation.quota import CountedRequests
from simulation.story import Story

# The responses that an API may send for all orders while it fails as a whole.
RESPONSES: tuple[Callable[[], Fault | bytes], ...] = (
    lambda: TransientFault("connection refused", reached=False),
    lambda: TransientFault("HTTP 503"),
    lambda: TransientFault("HTTP 500"),
    lambda: CredentialFault("HTTP 401"),
    lambda: ThrottledFault("HTTP 429"),
    lambda: ThrottledFault("HTTP 429", 5.0),
    lambda: TransportFault("our client failed"),
    lambda: PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"),
    lambda: PermanentFault(DeadReason.REJECTED, "HTTP 400"),
    lambda: b"<html>maintenance</html>",
)
_NOT_FOUND = PermanentFault(DeadReason.NOT_FOUND, "HTTP 404")
_SLOW = 10
"""Some requests take so many times as long as the others."""


class Table(MemoryStore):
    """Records rows that an older version replaced, and rows of another source.

    Attributes:
        refuses_all: whether a constraint rejects all rows.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source
        self.violations: list[str] = []
        self.refuses_all = False
        self.refuses = lambda row: self.refuses_all or row.order_id.startswith("refused")

    def _store_one(self, row: OrderRow) -> Any:
        before = self.rows.get(row.order_id)
        effect = super()._store_one(row)
        if not row.status.startswith(self._source):
            self.violations.append(f"{row.order_id} has the content of another source")
        if before is not None and version_of(self.rows[row.order_id]) < version_of(before):
            self.violations.append(f"{row.order_id} went back to an older version")
        return effect


class Shop(MemoryUpstream):
    """Serves each order in its version, and the former version for a while after a change.

    Attributes:
        given: the response to every request, or None for the usual responses.
    """

    def __init__(self, story: Story, source: str, random: Random) -> None:
        super().__init__(now)
        self._story = story
        self._source = source
        self._random = random
        # The times of the versions of each order.
        self._changes: dict[str, list[float]] = {}
        self.given: Fault | bytes | None = None
        self.requests = CountedRequests(story)
        # Processes, with the order and the end of each request that blames it, and the beginning and the end of each other one.
        self._blaming: list[tuple[str, str, float]] = []
        self._proving: list[tuple[str, float, float]] = []

    def create(self, order_id: str) -> None:
        """Create an order that does not exist yet."""
        self._changes.setdefault(order_id, [now()])

    def change(self, order_id: str) -> None:
        """Give the order its next version."""
        changes = self._changes[order_id]
        changes.append(max(now(), changes[-1] + 0.001))

    def version(self, order_id: str) -> int:
        """The number of the current version."""
        return len(self._changes[order_id])

    def expected_version(self, order_id: str) -> bytes:
        """The time of the current version in a webhook, in microseconds."""
        return b"%d" % round(_time(self._changes[order_id][-1]).timestamp() * 1_000_000)

    def listed(self) -> Iterator[tuple[str, datetime]]:
        """The orders in the list that can be stored, with the times of their changes. Every third change is listed later than the others."""
        shown_until = now() - self._story.lag
        for order_id, changes in self._changes.items():
            first = crc32(order_id.encode())
            late = [self._story.late if (first + number) % 3 == 0 else 0.0 for number in range(len(changes))]
            shown = [at for at, more in zip(changes, late, strict=True) if at + more <= shown_until]
            if shown and order_id.startswith("order"):
                yield order_id, _time(shown[-1])

    def has_evidence_against(self, order_id: str, before: float) -> bool:
        """Whether a process may blame the order: it has received two responses, and a document that it requested after each."""
        for process in {name for name, blamed, _ in self._blaming if blamed == order_id}:
            ends = sorted(at for name, blamed, at in self._blaming if (name, blamed) == (process, order_id))
            proofs = [(began, ended) for name, began, ended in self._proving if name == process and ended <= before]
            proven = [end for end in ends if any(began >= end for began, _ in proofs)]
            if any(began >= proven[0] and ended <= last for last in proven[1:] for began, ended in proofs):
                return True
        return False

    def as_seen_by(self, process: str, end: Callable[[], None]) -> "_Caller":
        """The shop for one process. `end` ends it, when it requests an order that kills its process."""
        return _Caller(self, process, end)

    async def respond(self, request: FetchRequest, process: str, end: Callable[[], None]) -> Fetched | Failed:
        """Serve a request."""
        with self.requests.counted(process):
            return await self._respond(request, process, end)

    async def _respond(self, request: FetchRequest, process: str, end: Callable[[], None]) -> Fetched | Failed:
        at, order_id = now(), str(request.order_id)
        if self.given is None and order_id.startswith("poison"):
            end()
        given = self._given(order_id) if self.given is None else self.given
        is_slow = self._random.random() < self._story.slow
        await asyncio.sleep(self._story.response_time * (_SLOW if is_slow else 1))
        if isinstance(given, PermanentFault) or (isinstance(given, bytes) and not given.startswith(b"{")):
            self._blaming.append((process, order_id, now()))
        elif isinstance(given, bytes):
            self._proving.append((process, at, now()))
        return response(request, given, _time(at), at)

    def _given(self, order_id: str) -> Fault | bytes:
        kind = order_id.partition("-")[0]
        if kind == "missing":
            return _NOT_FOUND
        if kind == "broken":
            return b"[]"
        if kind in {"failing", "poison"}:  # a process that stops already is not killed by poison
            return TransientFault("HTTP 500")
        changes, shown_until = self._changes[order_id], now() - self._story.lag
        shown = [changed_at for changed_at in changes if changed_at <= shown_until]
        if not shown:
            return _NOT_FOUND
        body = document(order_id, f"{self._source} version {len(shown)}")
        if self._story.shows_versions:
            body = b'%s,"updated_at":"%s"}' % (body[:-1], _time(shown[-1]).isoformat().encode())
        return body


class _Caller:
    def __init__(self, shop: Shop, process: str, end: Callable[[], None]) -> None:
        self._shop = shop
        self._process = process
        self._end = end

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        return await self._shop.respond(request, self._process, self._end)

    fetch_once = fetch


def version_of(row: OrderRow) -> int:
    """The number of a stored version."""
    return int(row.status.rpartition(" ")[2])


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
